"""The answers to the questions on lesson 05, and the laws that show them."""

import numpy as np
from minigrad_course.lesson.questions import Question
from minigrad_course.machines.virtual_cluster import VirtualCluster

from backends.comm import run_ranks
from backends.comm.collectives import allgather, ring_allreduce
from backends.comm.collectives.link import Link
from backends.comm.mailboxes import Deadlock


def ring_milliseconds(ranks, nbytes=1_000_000):
    cluster = VirtualCluster(ranks, Link(latency=1e-6, bandwidth=125e6))
    cluster.run(lambda comm: ring_allreduce(comm, np.ones(nbytes // 8)))
    sent = sum(message.nbytes for message in cluster.transfers if message.source == 0)
    return 1e3 * cluster.seconds, sent / 1e6


def twice_the_ranks(student):
    (before, _), (after, sent) = ring_milliseconds(8), ring_milliseconds(student.RANKS)
    assert student.RANKS == 16, (
        f"{student.RANKS} ranks take {after:.1f} ms, 8 ranks {before:.1f} ms; let RANKS be 16"
    )
    return (
        f"{after:.1f} ms instead of {before:.1f}: twice as many rounds, of half as many bytes each; rank 0 "
        f"sends {sent:.3f} MB instead of 1.75, and no number of ranks makes it 2"
    )


def shifted(receives_first, ranks):
    """Whether every rank gets the number of its left neighbor, where each send waits for its receiver."""

    def work(comm):
        left, right = (comm.rank - 1) % ranks, (comm.rank + 1) % ranks
        if receives_first(comm.rank, ranks):
            received = comm.recv(left)
            comm.send(np.array(comm.rank), right)
        else:
            comm.send(np.array(comm.rank), right)
            received = comm.recv(left)
        return int(received)

    try:
        return run_ranks(ranks, work, rendezvous=True) == [(rank - 1) % ranks for rank in range(ranks)]
    except Deadlock:
        return False


def around_the_ring(student):
    numbers = range(2, 9)
    works = [ranks for ranks in numbers if shifted(student.receives_first, ranks)]
    for ranks in numbers:
        first = [rank for rank in range(ranks) if student.receives_first(rank, ranks)]
        assert first == [0], (
            f"of {ranks} ranks {len(first)} receive first, {first}, and {len(works)} of {len(numbers)} "
            "numbers of ranks work; let only rank 0 receive first"
        )
    return (
        f"it works for {', '.join(map(str, works))} ranks: rank 0 receives, so the last rank has sent and "
        "receives, so the rank before it has sent, and so on: a deadlock is a circle, and one gap opens it"
    )


def sums(order, ranks=4):
    """The sums of 1,000 float32 numbers over the ranks, as each rank computes them: (ranks, 1000)."""

    def work(comm):
        gradients = allgather(comm, np.random.default_rng(comm.rank).normal(size=1000).astype(np.float32))
        rows = order(comm.rank, comm.size)
        total = gradients[rows[0]].copy()
        for row in rows[1:]:
            total += gradients[row]
        return total

    return np.array(run_ranks(ranks, work))


def own_part_first(student):
    for rank in range(4):
        rows, expected = list(student.order(rank, 4)), [(rank + i) % 4 for i in range(4)]
        assert rows == expected, f"rank {rank} of 4 adds up {rows}; let it add up {expected}"
    totals = sums(student.order)
    other = np.count_nonzero((totals != totals[0]).any(axis=0))
    in_order = sums(lambda rank, ranks: list(range(ranks)))
    assert other and (in_order == in_order[0]).all()
    off = abs(totals - totals[0]).max()
    return (
        f"{other} of 1,000 sums differ between ranks, by up to {off:.0e}: (a + b) + c is not a + (b + c) in "
        "floating point, so the copies of the weights drift apart; the ring adds each chunk up only once"
    )


QUESTIONS = [
    Question("c", twice_the_ranks, (("RANKS = 8", "RANKS = 16"),)),
    Question("a", around_the_ring, (("    return False\n", "    return rank == 0\n"),)),
    Question(
        "b",
        own_part_first,
        (("    return list(range(ranks))\n", "    return [(rank + i) % ranks for i in range(ranks)]\n"),),
    ),
]
