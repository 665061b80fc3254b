"""Laws of backends/comm/collectives/__init__.py: float16, on threads and in shared memory."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.comm import run_ranks
from backends.comm.shared_memory_allreduce import SharedMemoryAllreduce
from tests.backends.comm.collectives import half_laws as laws
from tests.backends.comm.collectives.allreduces import ALLREDUCES

terms = st.builds(
    laws.numbers,
    kind=st.sampled_from(list(laws.KINDS)),
    ranks=st.integers(1, 9),
    n=st.sampled_from([0, 1, 4, 9, 40]),
    seed=st.integers(0, 1000),
)


@pytest.mark.parametrize("name", ALLREDUCES)
@given(terms=terms)
def test_sums_of_16_bits_are_bounded(name, terms):
    run_ranks(len(terms), lambda comm: laws.all_reduce_16_bounded(ALLREDUCES[name], comm, terms))


@given(terms=terms)
def test_reductions_of_16_bits_are_bounded(terms):
    run_ranks(len(terms), lambda comm: laws.reductions_are_bounded(comm, terms))


@given(terms=terms)
def test_what_moves_has_16_bits(terms):
    run_ranks(len(terms), lambda comm: laws.what_moves_keeps_its_bits(comm, terms))


@pytest.mark.parametrize("kind", laws.KINDS)
def test_sums_of_16_bits_in_shared_memory_are_bounded(kind):
    """Copied through the slots, and in place: then the sum is in the array itself."""
    terms = laws.numbers(kind, 3, 41, 0)

    def work(comm):
        allreduce = SharedMemoryAllreduce(comm)
        laws.all_reduce_16_bounded(allreduce, comm, terms)
        array = allreduce.array(41, np.float16)
        array[...] = terms[comm.rank]
        with np.errstate(over="ignore", invalid="ignore"):
            assert allreduce(comm, array) is array
        laws.is_bounded_sum(array, terms)
        return array.tobytes()

    assert len(set(run_ranks(3, work))) == 1


def test_the_bound_is_reached_by_a_wrong_sum():
    """An error of two roundings where there is one addition is seen, and so is a sum that saturates."""
    one, small = np.ones(1, np.float16), np.full(1, 2.0**-10, np.float16)
    laws.is_bounded_sum(one + small, [one, small])
    with pytest.raises(AssertionError, match="no sums"):
        laws.is_bounded_sum(one - 2 * small, [one, small])
    large = np.full(1, 65504, np.float16)
    with pytest.raises(AssertionError, match="beyond the numbers"):
        laws.is_bounded_sum(large, [large, large])
    with pytest.raises(AssertionError, match="not finite"):
        laws.is_bounded_sum(large, [np.full(1, np.inf, np.float16), -one])
