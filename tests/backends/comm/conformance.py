"""The promises of every communicator, as programs that each rank of a group of any size runs.

A transport is right when all programs return on all ranks; a broken promise raises AssertionError. They
use started sends where ranks exchange, so they also hold where a send waits for its receiver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from backends.comm import Communicator
from minigrad.device import Array, to_host

ARRAYS = [
    np.array(3.5),
    np.zeros(0),
    np.zeros((0, 3)),
    np.arange(12.0).reshape(3, 4),
    np.asfortranarray(np.arange(12.0).reshape(3, 4)),
    np.arange(24, dtype="int64").reshape(2, 3, 4)[:, ::2, ::-1],
    np.arange(60, dtype="float32").reshape(1, 3, 4, 5).transpose(0, 3, 1, 2),
    np.array([True, False]),
    np.array([1, 2, 255], "uint8"),
    np.array([1e30, np.inf, -0.0, np.nan], "float32"),
    np.random.default_rng(0).normal(size=300_000),
]


def shift(comm: Communicator, x: Array, by: int = 1, tag: int = 0) -> Array:
    """Send ``x`` to the rank ``by`` ranks ahead, and receive from the rank ``by`` ranks behind."""
    finish = comm.start_send(x, (comm.rank + by) % comm.size, tag)
    received = comm.recv((comm.rank - by) % comm.size, tag)
    finish()
    return received


def same(array: Array, expected: Array) -> None:
    """Assert that two arrays agree in shape, dtype and every bit that can be compared."""
    array, expected = to_host(array), to_host(expected)
    assert (array.shape, array.dtype) == (expected.shape, expected.dtype), (array.dtype, array.shape)
    np.testing.assert_array_equal(array, expected)


@contextmanager
def refused(error: type[Exception], *texts: str) -> Iterator[None]:
    """Assert that the block raises ``error``, and that its message has the ``texts``."""
    try:
        yield
    except error as refusal:
        assert all(text in str(refusal) for text in texts), refusal
    else:
        raise AssertionError(f"no {error.__name__} was raised")


def arrays_arrive_as_they_were(comm: Communicator) -> None:
    """Any shape, dtype and memory order, between any two ranks, also from a rank to itself."""
    for x in ARRAYS:
        for by in range(comm.size):
            same(shift(comm, x, by), x)


def what_was_sent_may_change(comm: Communicator) -> None:
    """After a finished send the sender may change its array; ``send`` is finished when it returns."""
    x = np.full(5, comm.rank)
    received = shift(comm, x)
    x[:] = -1
    same(received, np.full(5, (comm.rank - 1) % comm.size))


def what_was_received_is_private(comm: Communicator) -> None:
    """Each receive returns memory of its own: later messages do not change an array."""
    arrays = [shift(comm, np.full(4, 10 * i + comm.rank)) for i in range(5)]
    source = (comm.rank - 1) % comm.size
    for i, x in enumerate(arrays):
        same(x, np.full(4, 10 * i + source))
        x[:] = 0
    assert not any(np.shares_memory(a, b) for i, a in enumerate(arrays) for b in arrays[:i])


def tags_do_not_mix_and_order_is_kept(comm: Communicator) -> None:
    """Messages of one source and tag arrive in the order they were sent; other tags do not matter."""
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    finish = [comm.start_send(np.array(i), right, tag=i % 3) for i in range(30)]
    for tag in (2, 0, 1):
        assert [int(comm.recv(left, tag)) for _ in range(10)] == list(range(tag, 30, 3))
    for done in finish:
        done()


def receives_match_in_the_order_they_were_started(comm: Communicator) -> None:
    """Finishing them in another order changes nothing."""
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    receives = [comm.start_recv(left) for _ in range(4)]
    sends = [comm.start_send(np.array(i), right) for i in range(4)]
    array = {i: int(receives[i]()) for i in (2, 0, 3, 1)}
    assert array == {i: i for i in range(4)}, array
    for done in sends:
        done()


def many_messages_may_be_under_way(comm: Communicator) -> None:
    """Hundreds of started messages to everyone, received last sender first."""
    sends = [
        comm.start_send(np.array([comm.rank, i]), to, tag=7) for i in range(50) for to in range(comm.size)
    ]
    for source in reversed(range(comm.size)):
        for i in range(50):
            same(comm.recv(source, tag=7), np.array([source, i]))
    for done in sends:
        done()


def whoever_sends_is_heard(comm: Communicator) -> None:
    """``recv_any`` names the source, and takes each message once."""
    if comm.rank == 0:
        heard = [comm.recv_any(tag=3) for _ in range(2 * (comm.size - 1))]
        assert sorted(source for source, _ in heard) == sorted(2 * list(range(1, comm.size)))
        for source, x in heard:
            same(x, np.full(3, source))
    else:
        for _ in range(2):
            comm.send(np.full(3, comm.rank), 0, tag=3)


def both_sides_are_named_where_they_differ(comm: Communicator) -> None:
    """An expected shape or dtype that differs from the received one is an error that names both."""
    for expect in (np.zeros(4, "float32"), np.zeros(3, "float64")):
        finish = comm.start_send(np.zeros(3, "float32"), comm.rank, tag=1)
        with refused(ValueError, "float32(3,)", f"{expect.dtype}{expect.shape}"):
            comm.recv(comm.rank, tag=1, expect=expect)
        finish()
    finish = comm.start_send(np.zeros(3, "float32"), comm.rank, tag=1)
    comm.recv(comm.rank, tag=1, expect=np.ones(3, "float32"))
    finish()


def a_peer_must_exist(comm: Communicator) -> None:
    """Ranks outside the group are refused by number."""
    for call in (lambda: comm.send(np.zeros(1), comm.size), lambda: comm.recv(-1)):
        with refused(ValueError, f"ranks 0 to {comm.size - 1}"):
            call()


def groups_do_not_hear_each_other(comm: Communicator) -> None:
    """Groups, and groups of groups, have their own ranks and messages; ``key`` orders them."""
    half = comm.split(comm.rank % 2, key=-comm.rank)
    members = [r for r in reversed(range(comm.size)) if r % 2 == comm.rank % 2]
    assert (half.rank, half.size) == (members.index(comm.rank), len(members))
    quarter = half.split(half.rank // 2)
    sent = comm.start_send(np.array(comm.rank), (comm.rank + 1) % comm.size)
    inner = shift(quarter, np.array(100 * comm.rank))
    assert int(inner) == 100 * members[half.rank // 2 * 2 + (quarter.rank - 1) % quarter.size]
    assert int(shift(half, np.array(comm.rank))) == members[(half.rank - 1) % half.size]
    assert int(comm.recv((comm.rank - 1) % comm.size)) == (comm.rank - 1) % comm.size
    sent()


def a_background_has_messages_of_its_own(comm: Communicator) -> None:
    """Only the other ranks' jobs receive a job's messages; a job may split, like any program."""

    def job(comm: Communicator) -> list[int]:
        half = comm.split(comm.rank % 2)
        return [int(shift(group, np.array(-comm.rank), tag=5)) for group in (comm, half)]

    background, left = comm.background(), (comm.rank - 1) % comm.size
    finish = background.start(job, "shift", 8)
    assert int(shift(comm, np.array(comm.rank), tag=5)) == left
    members = [r for r in range(comm.size) if r % 2 == comm.rank % 2]
    assert finish() == [-left, -members[(comm.rank // 2 - 1) % len(members)]]
    background.close()


def jobs_run_in_order_while_the_rank_goes_on(comm: Communicator) -> None:
    """Jobs run one after another; the rank continues before its jobs do, and may finish any first."""
    background, diary = comm.background(), []

    def job(i: int, comm: Communicator) -> int:
        diary.append(i)
        received = shift(comm, np.array(10 * i + comm.rank))
        diary.append(i)
        return int(received)

    after, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    if comm.rank > 0:
        comm.recv(left, tag=2)  # so the jobs of the ranks before have been started, and wait
    finishes = [background.start(lambda comm, i=i: job(i, comm), "shift", 8) for i in range(4)]
    if comm.rank < comm.size - 1:
        comm.send(np.zeros(1), after, tag=2)
    for i in (2, 0, 3, 1):
        assert finishes[i]() == 10 * i + left
    assert diary == [0, 0, 1, 1, 2, 2, 3, 3], diary
    background.close()


def a_background_keeps_its_promises_when_jobs_fail(comm: Communicator) -> None:
    """An error of a job is raised where it, or a later job, is finished; a closed background takes no job."""
    background, ran = comm.background(), []
    fine = background.start(lambda comm: comm.size)
    finishes = [background.start(lambda _, i=i: ran.append(i) or 1 // i) for i in (0, 1)]
    for finish in (*finishes, *finishes):
        with refused(ZeroDivisionError):
            finish()
    assert fine() == comm.size and ran == [0]
    background.close()
    background.close()
    with refused(RuntimeError, "is closed and takes no sum"):
        background.start(lambda comm: None, "sum")


def collectives_have_the_names_of_mpi4py(comm: Communicator) -> None:
    """Arrays of the ranks' own shapes, and numbers, by any root; what has no value there is None."""
    rank, size = comm.rank, comm.size
    own = [np.full(1 + source, 10.0 * source) for source in range(size)]
    for root in range(size):
        same(comm.bcast(own[root] if rank == root else None, root), own[root])
        arrays = comm.gather(own[rank], root)
        if rank == root:
            assert arrays is not None and len(arrays) == size
            for array, right in zip(arrays, own, strict=True):
                same(array, right)
        else:
            assert arrays is None
        same(comm.scatter(own if rank == root else None, root), own[rank])
        for op, right in ((np.add, size * (size + 1) // 2), (np.maximum, size)):
            value = comm.reduce(rank + 1, op, root)
            assert value == right if rank == root else value is None
    for array, right in zip(comm.allgather(own[rank]), own, strict=True):
        same(array, right)
    parts = comm.alltoall([100 * rank + to for to in range(size)])
    assert [int(part) for part in parts] == [100 * source + rank for source in range(size)]


def a_barrier_waits_for_all(comm: Communicator) -> None:
    """On a virtual clock nobody goes on before the rank that computes longest has come."""
    before = comm.time()
    comm.compute(1.0 + comm.rank)
    is_virtual = comm.time() >= before + 1.0
    comm.barrier()
    assert not is_virtual or comm.time() >= comm.size, f"rank {comm.rank} went on at {comm.time()}"


PROMISES: list[Callable[[Communicator], None]] = [
    arrays_arrive_as_they_were,
    what_was_sent_may_change,
    what_was_received_is_private,
    tags_do_not_mix_and_order_is_kept,
    receives_match_in_the_order_they_were_started,
    many_messages_may_be_under_way,
    whoever_sends_is_heard,
    both_sides_are_named_where_they_differ,
    a_peer_must_exist,
    groups_do_not_hear_each_other,
    a_background_has_messages_of_its_own,
    jobs_run_in_order_while_the_rank_goes_on,
    a_background_keeps_its_promises_when_jobs_fail,
    collectives_have_the_names_of_mpi4py,
    a_barrier_waits_for_all,
]
