"""Laws of lessons/minigrad_course/machines/overlap.py: the virtual clock agrees with formulas."""

from minigrad_course.machines.overlap import AllToAll, Busy, Compute, Step, in_sequence, in_turns
from minigrad_course.machines.virtual_cluster import VirtualCluster

from backends.comm.collectives.link import Link


def run(form, micros: list[list[Step | None]], ranks: int) -> tuple[float, list[Busy]]:
    """When the last rank is done, and what rank 0 did; a byte takes a second."""
    cluster = VirtualCluster(ranks, Link(0.0, 1.0))
    done = cluster.run(lambda comm: form(comm, micros))
    assert all(one == done[0] for one in done), f"ranks differ: {done}"
    return cluster.seconds, done[0]


def halves(forward: int, backward: int, nbytes: int, n: int) -> tuple[list[Step | None], list[Step | None]]:
    """A forward, which begins with computing, and a backward, which begins with an all-to-all."""
    return [Compute(forward), AllToAll(nbytes)] * n, [AllToAll(nbytes), Compute(backward)] * n


def times_add_up_in_sequence(forward: int, backward: int, nbytes: int, n: int, ranks: int) -> None:
    micros = halves(forward, backward, nbytes, n)
    seconds, done = run(in_sequence, [*micros], ranks)
    exchange = nbytes * (ranks - 1)
    assert seconds == n * (forward + backward + 2 * exchange), f"{seconds} s"
    assert [one.step for one in done] == [*micros[0], *micros[1]]
    assert all(one.stop == following.start for one, following in zip(done, done[1:], strict=False))


def a_forward_hides_beside_a_backward(forward: int, backward: int, nbytes: int, n: int, ranks: int) -> None:
    """Each turn takes as long as the longer of what is computed and what is sent."""
    seconds, done = run(in_turns, [*halves(forward, backward, nbytes, n)], ranks)
    exchange = nbytes * (ranks - 1)
    expected = n * (max(forward, exchange) + max(backward, exchange))
    assert seconds == expected, f"{seconds} s, by the formula {expected}"
    keeps_order_and_resources([*halves(forward, backward, nbytes, n)], done)


def two_forwards_fill(forward: int, nbytes: int, n: int, ranks: int) -> None:
    """The second begins a turn later, so the first turn only computes, and the last one only sends."""
    steps, _ = halves(forward, 0, nbytes, n)
    seconds, done = run(in_turns, [steps, [None, *steps]], ranks)
    exchange = nbytes * (ranks - 1)
    expected = 2 * n * max(forward, exchange) + min(forward, exchange)
    assert seconds == expected, f"{seconds} s, by the formula {expected}"
    keeps_order_and_resources([steps, steps], done)


def keeps_order_and_resources(micros: list[list[Step | None]], done: list[Busy]) -> None:
    """No step starts before the one before it ended; a rank computes once at a time, and sends so."""
    for micro, steps in enumerate(micros):
        own = [one for one in done if one.micro == micro]
        assert sorted(map(str, steps)) == sorted(str(one.step) for one in own)
        for one, following in zip(own, own[1:], strict=False):
            assert one.stop <= following.start, f"{following} starts before {one} ended"
    for kind in (Compute, AllToAll):
        busy = [one for one in done if isinstance(one.step, kind)]
        for one, following in zip(busy, busy[1:], strict=False):
            assert one.stop <= following.start, f"{following} and {one} at once"
