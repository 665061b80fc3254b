"""Laws of backends/comm/threads.py, thread_ranks.py and mailboxes.py: messages arrive whole, in
order, and as copies; nothing is lost, nothing hangs.
"""

import threading
import time

import numpy as np
import pytest

from backends.comm import ThreadComm, allreduce, broadcast, gather, run_ranks


def test_floats_are_added_in_rank_order_so_all_ranks_hold_the_serial_bits():
    parts = [np.random.default_rng(r).normal(size=100).astype("float32") for r in range(4)]
    serial = ((parts[0] + parts[1]) + parts[2]) + parts[3]
    for total in run_ranks(4, lambda comm: allreduce(comm, parts[comm.rank])):
        np.testing.assert_array_equal(total, serial)


ARRAYS = [
    np.array(3.5),
    np.zeros((0, 3)),
    np.arange(12.0).reshape(3, 4).T,
    np.arange(24, dtype="int64").reshape(2, 3, 4)[:, ::2, ::-1],
    np.array([True, False]),
    np.array([1e30, np.inf, np.nan], "float32"),
]


@pytest.mark.parametrize("x", ARRAYS, ids=lambda x: f"{x.dtype}{x.shape}")
def test_an_array_arrives_as_it_was(x):
    def work(comm):
        comm.send(x, (comm.rank + 1) % 2)
        return comm.recv((comm.rank + 1) % 2)

    for received in run_ranks(2, work):
        np.testing.assert_array_equal(received, x)
        assert received.dtype == x.dtype and not np.shares_memory(received, x)


def test_what_is_sent_may_be_changed_at_once():
    def work(comm):
        x = np.ones(3)
        comm.send(x, comm.rank)
        x[:] = 7
        return comm.recv(comm.rank)

    np.testing.assert_array_equal(run_ranks(1, work)[0], np.ones(3))


def test_messages_keep_their_order_within_a_tag_and_tags_do_not_mix():
    def work(comm: ThreadComm):
        if comm.rank == 0:
            for i in range(20):
                comm.send(np.array(i), 1, tag=i % 2)
            return None
        odd = [int(comm.recv(0, tag=1)) for _ in range(10)]
        even = [int(comm.recv(0, tag=0)) for _ in range(10)]
        return odd, even

    assert run_ranks(2, work)[1] == (list(range(1, 20, 2)), list(range(0, 20, 2)))


def test_groups_that_split_do_not_hear_each_other():
    def work(comm):
        row = comm.split(comm.rank // 2)
        column = comm.split(comm.rank % 2, key=-comm.rank)
        x = np.array([float(comm.rank)])
        return float(allreduce(row, x)[0]), float(allreduce(column, x)[0]), row.rank, column.rank

    assert run_ranks(4, work) == [(1, 2, 0, 1), (1, 4, 1, 1), (5, 2, 0, 0), (5, 4, 1, 0)]


def test_broadcast_and_gather():
    def work(comm):
        x = np.full(2, comm.rank)
        return broadcast(comm, x, root=2)[0], [int(part[0]) for part in gather(comm, x, root=1)]

    assert run_ranks(3, work) == [(2, []), (2, [0, 1, 2]), (2, [])]


def test_the_exception_of_one_rank_ends_the_others_and_is_the_one_seen():
    def work(comm):
        if comm.rank == 1:
            raise ZeroDivisionError("rank 1's own")
        comm.recv(1)

    before = threading.active_count()
    with pytest.raises(ZeroDivisionError, match="rank 1's own"):
        run_ranks(3, work)
    assert threading.active_count() == before


def test_a_wait_has_a_bound_and_says_who_it_waits_for(monkeypatch):
    monkeypatch.setenv("MINIGRAD_TIMEOUT", "0.05")
    words = r"rank 0 waited 0.05 s to receive from rank 1 \(tag 3\) at test_threads.py:\d+"

    def work(comm):
        if comm.rank == 0:
            comm.recv(1, tag=3)
        while comm.world.timed_out is None:
            time.sleep(1e-3)

    with pytest.raises(TimeoutError, match=words):
        run_ranks(2, work)


def test_a_message_nobody_receives_is_reported():
    with pytest.raises(RuntimeError, match=r"never received: 0 to 1 \(tag 5, sent at test_threads.py:\d+\)"):
        run_ranks(2, lambda comm: comm.send(np.ones(1), 1, tag=5) if comm.rank == 0 else None)


@pytest.mark.parametrize("value", ["soon", "-1", "0"])
def test_a_senseless_bound_is_refused(value, monkeypatch):
    monkeypatch.setenv("MINIGRAD_TIMEOUT", value)
    with pytest.raises(ValueError, match="MINIGRAD_TIMEOUT must be a number of seconds above 0"):
        run_ranks(1, lambda comm: comm.recv(0))


def test_a_peer_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="rank 2 does not exist; this communicator has ranks 0 to 1"):
        run_ranks(2, lambda comm: comm.send(np.ones(1), 2))


def test_there_must_be_a_rank():
    with pytest.raises(ValueError, match="number of ranks must be at least 1, got 0"):
        run_ranks(0, lambda comm: None)
