"""Laws of minigrad/tokens.py: batches that know their documents, and penalties, in strategies too."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.comm import run_ranks
from backends.data_parallel import DataParallel
from backends.grid import Grid
from backends.laws import trains_like_serial
from backends.model_parallel.model_parallel import ModelParallel
from backends.pipeline import Pipeline
from backends.stack import Stack
from minigrad import nn, ops
from minigrad.data import Batch
from minigrad.tokens import Tokens
from minigrad.work import forward_backward_pass
from tests.minigrad import tokens_laws
from tests.minigrad.tokens_laws import LENGTH, Penalized, loss_of_tokens, rows_of_documents, small_transformer

documents = st.lists(st.integers(1, LENGTH), min_size=1, max_size=6)
seeds = st.integers(0, 99)
PLAN = {"1": "heads", "2": "heads", "0": "vocabulary", "4": "vocabulary"}


@given(documents, seeds)
def test_documents_are_alone(lengths, seed):
    tokens_laws.documents_are_alone(tokens_laws.evaluation, lengths, seed)


@given(documents, seeds)
def test_training_is_that_of_the_documents(lengths, seed):
    tokens_laws.trains_documents_alone(forward_backward_pass, lengths, seed)


@given(st.sampled_from([1.0, 0.25]), st.booleans(), seeds)
def test_penalties_are_terms_of_the_loss(weight, again, seed):
    tokens_laws.penalties_are_terms_of_the_loss(forward_backward_pass, weight, again, seed)


def stack(comm, **axes):
    """Strategies on those axes that have several ranks, with two micro-batches."""
    grid = Grid(comm, **axes)
    members = [DataParallel(grid.data, micro_batches=2)] if "data" in axes and "pipe" not in axes else []
    members += [DataParallel(grid.data)] if "data" in axes and "pipe" in axes else []
    members += [Pipeline(grid.pipe, micro_batches=2, recompute=True)] if "pipe" in axes else []
    members += [ModelParallel(grid.model, PLAN)] if "model" in axes else []
    return Stack(*members)


LAYOUTS = [{"data": 3}, {"pipe": 2}, {"model": 2}, {"data": 2, "pipe": 2, "model": 2}]


@pytest.mark.parametrize("axes", LAYOUTS, ids=str)
def test_strategies_know_the_documents(axes):
    batches = [rows_of_documents(lengths, 1)[0] for lengths in ([5, 7, 3, 12, 1, 2, 9, 12], [4, 12, 8], [6])]

    def work(comm):
        trains_like_serial(
            lambda comm: stack(comm, **axes), comm, lambda rng: small_transformer(), loss_of_tokens, batches
        )

    run_ranks(int(np.prod(list(axes.values()))), work)


@pytest.mark.parametrize("axes", [{"data": 3}, {"pipe": 2}, {"data": 2, "pipe": 2}], ids=str)
def test_strategies_report_the_penalties_of_all_ranks(axes):
    rng = np.random.default_rng(0)
    batches = [Batch(rng.normal(size=(n, 3)), rng.integers(0, 3, n)) for n in (7, 4, 1)]

    def build(rng):
        return nn.Sequential(Penalized(rng), nn.Tanh(), Penalized(rng), nn.Linear(3, 3, rng=rng))

    def work(comm):
        trains_like_serial(lambda comm: stack(comm, **axes), comm, build, ops.cross_entropy, batches)

    run_ranks(int(np.prod(list(axes.values()))), work)


def test_tokens_that_are_no_tokens_are_refused():
    with pytest.raises(ValueError, match=r"a position each, integers \(B, S\), got float64\(2, 3\)"):
        Tokens(np.zeros((2, 3)))
    with pytest.raises(ValueError, match="tokens of its rows, got those of 2 rows for 3"):
        Batch(np.zeros((3, 4)), np.zeros(3), tokens=Tokens(np.zeros((2, 4), int)))
