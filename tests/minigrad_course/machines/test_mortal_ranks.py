"""Laws of lessons/minigrad_course/machines/mortal_ranks.py: a rank dies after as many communications as
were drawn.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from minigrad_course.machines.mortal_ranks import run_mortal_ranks

from backends.comm.recoverable import RankDied

MESSAGES = 3


def received_and_sent(left, seed):
    """How many messages of rank 1, which dies, rank 0 receives; how many it says to have sent."""

    def work(comm):
        comm = comm.recoverable()
        for number in range(MESSAGES):
            if comm.rank == 1:
                comm.send(np.array(number), 0)
            else:
                try:
                    assert comm.recv(1) == number
                except RankDied:
                    return number
        return MESSAGES

    return run_mortal_ranks(2, work, {1: left}, seed=seed)


@given(left=st.integers(0, 5))
def test_a_rank_dies_after_so_many_communications(left):
    assert received_and_sent(left, None) == [min(left, MESSAGES), MESSAGES if left >= MESSAGES else None]


@given(left=st.integers(0, 7), seed=st.integers(0, 99))
def test_a_seed_takes_turns_which_count_too(left, seed):
    assert received_and_sent(left, seed) == [-(-left // 2) if left < 6 else 3, 3 if left >= 6 else None]


def test_communicators_that_cannot_recover_do_not_count():
    assert run_mortal_ranks(2, lambda comm: comm.split(0).rank, {1: 0}) == [0, 1]


def test_no_ranks_are_refused():
    with pytest.raises(ValueError, match="the number of ranks"):
        run_mortal_ranks(0, lambda comm: None, {})
