"""Laws of backends/first_difference.py and recording.py: in a right step of any strategy no tensor differs,
and a fault of one layer, on one rank, for one sample, is named where it is.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.comm import run_ranks
from backends.data_parallel import DataParallel
from backends.first_difference import first_difference
from minigrad import ops
from tests import nets
from tests.backends.first_difference_laws import (
    KINDS,
    WIDTHS,
    Fault,
    Ranks,
    agrees,
    names_a_missing_sum,
    names_the_fault,
    sees_every_layer,
)
from tests.backends.proof_layouts import LAYOUTS, REUSING

QUICK = (
    "data, few samples", "data, recomputed", "bucketed, micro-batches", "ZeRO 3", "column, row", "classes",
    "grid, sequences", "filters, channels", "heads, masks", "tokens, gathered again", "ring, documents",
    "ulysses", "experts", "interleaved", "zb-h1", "pipe, tied", "pipe, recomputed", "layer-wise",
    "data x pipe x model", "data x ring x pipe", "a user's",
)  # fmt: skip


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in QUICK else [pytest.mark.thorough]) for n in LAYOUTS]
)
def test_in_a_right_step_nothing_differs(name):
    agrees(name)


def test_every_layer_is_seen():
    sees_every_layer(first_difference, "data, ReLU", layers=3)


RANKS = st.builds(
    Ranks, data=st.integers(1, 2), pipe=st.integers(1, 3), model=st.integers(1, 2), micro=st.integers(1, 3)
)


@settings(max_examples=settings().max_examples * 2)
@given(data=st.data(), ranks=RANKS, samples=st.integers(2, 7))
def test_a_fault_is_named_where_it_is(data, ranks, samples):
    fault = Fault(
        data.draw(st.sampled_from(KINDS)),
        data.draw(st.integers(0, len(WIDTHS) - 2)),
        data.draw(st.integers(0, ranks.data * ranks.pipe * ranks.model - 1)),
        data.draw(st.integers(0, samples - 1)),
    )
    names_the_fault(first_difference, ranks, fault, samples)


def test_a_sum_over_ranks_that_is_missing_is_named_after_the_terms():
    names_a_missing_sum(first_difference)


def test_other_parameters_are_named_before_the_step():
    def work(comm):
        def build(_):
            return nets.Reusing(np.random.default_rng(5))

        return first_difference(
            DataParallel, comm, build, ops.cross_entropy, REUSING, oracle=lambda rng: nets.Reusing(rng)
        )

    first = run_ranks(2, work)[0].first
    assert first is not None and first.direction == "placement"
