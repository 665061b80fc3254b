"""Laws of backends/comm/shared_memory.py and shared_memory_allreduce.py: all ranks, here threads, see what
was written before a meeting, and sums are exact.
"""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from minigrad_course.machines.virtual_cluster import VirtualCluster

from backends.comm import run_ranks
from backends.comm.collectives import naive_allreduce
from backends.comm.mailboxes import Deadlock
from backends.comm.shared_memory import check_room
from backends.comm.shared_memory_allreduce import SharedMemoryAllreduce
from backends.data_parallel import DataParallel
from backends.laws import allreduce_sums, trains_like_serial
from minigrad import ops
from tests.nets import Forked
from tests.nets import small_images_of as batches_of

HOW = st.sampled_from([{}, {"seed": 1}, {"seed": 2}, {"seed": 3}])


def neighbours_are_read(comm, rounds=5, meet=True):
    """Each rank writes, meets, reads all others, meets: every round, with sizes of their own."""
    memory = comm.share(8 * (comm.rank + 1))
    assert memory is not None
    numbers = [part.view(np.int64) for part in memory.parts]
    assert [len(n) for n in numbers] == list(range(1, comm.size + 1))
    for i in range(rounds):
        numbers[comm.rank][:] = 10 * i + comm.rank
        if meet:
            memory.barrier("to read")
        assert [int(n[-1]) for n in numbers] == [10 * i + rank for rank in range(comm.size)]
        memory.barrier("to write")


@given(ranks=st.integers(1, 6), how=HOW)
def test_what_was_written_before_a_meeting_is_read_after_it(ranks, how):
    run_ranks(ranks, neighbours_are_read, **how)


@pytest.mark.parametrize("seed", [1, 2])
def test_without_the_meeting_it_is_not(seed):
    with pytest.raises(AssertionError):
        run_ranks(3, lambda comm: neighbours_are_read(comm, meet=False), seed=seed)


def test_a_rank_that_does_not_come_is_a_deadlock_and_not_a_hang():
    def one_leaves(comm):
        memory = comm.share(8)
        if memory is not None and comm.rank:
            memory.barrier("to read")

    with pytest.raises(Deadlock, match="rank 1 waits for all ranks to read"):
        run_ranks(3, one_leaves)


def test_groups_share_with_their_own():
    def group(comm):
        half = comm.split(comm.rank % 2)
        memory = half.share(1)
        assert memory is not None and len(memory.parts) == half.size
        memory.parts[half.rank][0] = comm.rank
        memory.barrier("to read")
        assert [int(part[0]) for part in memory.parts] == half.members

    run_ranks(5, group, seed=1)


@given(ranks=st.integers(1, 6), n=st.integers(0, 70), how=HOW, dtype=st.sampled_from(["float32", "int64"]))
def test_the_window_sums(ranks, n, how, dtype):
    def work(comm):
        window = SharedMemoryAllreduce(comm)
        allreduce_sums(window, comm, n, dtype=dtype)
        mine = np.random.default_rng(comm.rank).normal(size=n)
        array = window.array(n, "float64")
        array[...] = mine
        total = window(comm, array)
        assert total is array or not n
        assert window.owns(array) == window.owns(array[-1:]) == (n > 0)
        np.testing.assert_array_equal(total, naive_allreduce(comm, mine))  # the same bits
        assert not window.owns(mine)
        other = SharedMemoryAllreduce(comm)  # any of the same ranks sums it where it lies
        array[...] = mine
        assert other.owns(array) == (n > 0) and (other(comm, array) is array or not n)
        np.testing.assert_array_equal(array, naive_allreduce(comm, mine) if n else mine)

    run_ranks(ranks, work, **how)


def test_arrays_of_two_shared_memories_are_not_mixed():
    """Nor one in shared memory with one that is not, nor one of other ranks in place."""

    def work(comm):
        window, other = SharedMemoryAllreduce(comm), SharedMemoryAllreduce(comm)
        arrays = window.array(8), other.array(8), np.zeros(8, np.float32)
        for one, two in permutations(arrays, 2):
            with pytest.raises(ValueError, match="rank 0 has .* rank 2 has .* in one all-reduce"):
                other(comm, two if comm.rank == 2 else one)
        pair = comm.split(comm.rank == 2)
        array = SharedMemoryAllreduce(pair).array(8)
        array[...] = comm.rank
        assert not window.owns(array)
        np.testing.assert_array_equal(window(comm, array), [3.0] * 8)
        np.testing.assert_array_equal(array, comm.rank)

    run_ranks(3, work, seed=1)


def test_both_sides_are_named_where_shapes_differ():
    def work(comm):
        window = SharedMemoryAllreduce(comm)
        with pytest.raises(ValueError, match=r"rank 0 has float64\(3,\), rank 2 has float64\(4,\)"):
            window(comm, np.zeros(3 + (comm.rank == 2)))

    run_ranks(3, work, seed=1)


@given(ranks=st.integers(1, 5), sizes=st.lists(st.integers(1, 13), min_size=1, max_size=3), how=HOW)
def test_data_parallel_in_the_window_trains_like_serial(ranks, sizes, how):
    batches = batches_of(sizes)

    def work(comm):
        window = SharedMemoryAllreduce(comm)
        law = (lambda c: DataParallel(c, window)), comm, Forked, ops.cross_entropy, batches
        trains_like_serial(*law)

    run_ranks(ranks, work, **how)


def test_machines_of_a_cluster_share_nothing_and_the_window_falls_back():
    def work(comm):
        assert comm.share(8) is None
        allreduce_sums(SharedMemoryAllreduce(comm), comm, 7)

    VirtualCluster(3).run(work)


def test_too_little_shared_memory_says_how_to_get_more():
    with pytest.raises(RuntimeError, match=r"the ranks share 3 MB, /dev/shm has 2 MB free; .*--shm-size"):
        check_room(3 << 20, 2 << 20)
