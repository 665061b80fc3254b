"""Laws of lessons/minigrad_course/storm/unreliable_cluster.py and fault.py: what hosts that stop and links
that are cut do to a program; all times are those of the simulated clock.
"""

from __future__ import annotations

from contextlib import suppress

import numpy as np
from minigrad_course.storm.fault import Fault
from minigrad_course.storm.unreliable_cluster import LIMIT, Killed, UnreliableCluster, UnreliableComm

from backends.comm.collectives.link import Link

LINK = Link(0.01)


def a_killed_rank_does_nothing_more(at: float) -> None:
    """Rank 0 counts messages until it is killed; what its ``finally`` sends reaches nobody."""
    messages: list[float] = []
    ends: dict[int, float] = {}

    def work(comm: UnreliableComm) -> None:
        try:
            if comm.rank == 1:
                while True:
                    messages.append(float(comm.recv(0)[0]))
            for number in range(1000):
                comm.compute(0.1)
                comm.send(np.array([number]), to=1)
        except Exception as error:
            raise AssertionError(f"a killed process handled {error!r}") from error
        finally:
            ends[comm.rank] = comm.time()
            with suppress(Exception):
                comm.send(np.array([-1.0]), to=1 - comm.rank)

    cluster = UnreliableCluster(2, LINK, notice=0.5)
    with suppress(Killed):
        cluster.attempt(0.0, {0: at}, work)
    assert -1.0 not in messages, "the killed rank sent something"
    count = len(messages)
    assert messages == [float(number) for number in range(count)], messages
    assert 0.1 * count - 1e-9 <= at <= 0.1 * (count + 2), f"{count} messages came, and it was killed at {at}"
    assert abs(ends[0] - at) < 1e-9, f"rank 0 was killed at {at}, and ended at {ends[0]}"
    assert abs(ends[1] - at - 0.5) < 1e-9, f"rank 1 is stopped at {at + 0.5}, and ended at {ends[1]}"


def a_message_passes_a_partition_afterwards(sent: float, fault: Fault) -> None:
    """A message of rank 0 at time ``sent`` arrives as on a whole link, or when the partition is over."""
    end = arrival(sent, fault)
    late = fault.at <= sent + LINK.latency and sent < fault.end
    expected = (fault.end if late else sent) + LINK.latency
    if expected > LIMIT:
        assert end is None, (
            f"a wait of {expected:.1f} s ends after {LIMIT} s, and it got the message at {end}"
        )
    else:
        assert end is not None and abs(end - expected) < 1e-9, (
            f"it is to arrive at {expected}, and did at {end}"
        )


def a_paused_host_goes_on_afterwards(sent: float, fault: Fault) -> None:
    """An event of the paused host happens when the pause is over: the send of rank 0, or a wait's end."""
    end = arrival(sent, fault)
    went = fault.end if fault.rank == 0 and fault.at <= sent < fault.end else sent
    there = went + LINK.latency
    wakes = min(there, LIMIT)
    if fault.rank == 1 and fault.at <= wakes < fault.end:
        wakes = fault.end
    if there > wakes:
        assert end is None, f"a wait ends after {LIMIT} s, and it got the message of {there} at {end}"
    else:
        assert end is not None and abs(end - wakes) < 1e-9, f"it is to go on at {wakes}, and did at {end}"


def arrival(sent: float, fault: Fault) -> float | None:
    """When rank 1, which waits from the beginning, has a message that rank 0 sends; None if it gives up."""

    def work(comm: UnreliableComm) -> float | None:
        if comm.rank == 0:
            comm.compute(sent)
            comm.send(np.zeros(1), to=1)
            return None
        comm.recv(0)
        return comm.time()

    cluster = UnreliableCluster(2, LINK, faults=[fault])
    try:
        return cluster.attempt(0.0, {}, work)[1]
    except TimeoutError:
        return None
