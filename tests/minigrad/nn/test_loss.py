"""Laws of minigrad/nn/loss.py: losses as objects, by PyTorch's names."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minigrad import nn
from tests.minigrad.nn.element_loss_laws import FORMULAS, is_by_the_book, nll_is_by_the_book


@pytest.mark.parametrize("name", FORMULAS)
@given(
    seed=st.integers(0, 999),
    n=st.integers(1, 9),
    parts=st.integers(1, 4),
    how=st.sampled_from(["mean", "sum"]),
)
def test_a_loss_is_its_formula(name, seed, n, parts, how):
    rng = np.random.default_rng(seed)
    is_by_the_book(name, rng.normal(size=(n, 3)), rng.random((n, 3)), how, parts)


@given(
    seed=st.integers(0, 999),
    n=st.integers(1, 9),
    weight=st.sampled_from([None, [0.5, 1.0, 3.0]]),
    ignored=st.sampled_from([None, 0]),
)
def test_the_nll_loss_is_its_formula(seed, n, weight, ignored):
    rng = np.random.default_rng(seed)
    labels = np.concatenate([[1], rng.integers(0, 3, n - 1)])
    nll_is_by_the_book(nn.NLLLoss, rng.normal(size=(n, 3)), labels, weight, ignored)


def test_another_reduction_is_refused():
    with pytest.raises(ValueError, match="unknown reduction 'none'; choose one of mean, sum"):
        nn.MSELoss(reduction="none")
    with pytest.raises(TypeError, match="no label_smoothing; take CrossEntropyLoss"):
        nn.NLLLoss(label_smoothing=0.1)
    with pytest.raises(TypeError, match="HuberLoss takes delta=, reduction= and not delt"):
        nn.HuberLoss(delt=1.0)
