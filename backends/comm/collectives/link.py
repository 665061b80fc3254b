"""A link between ranks, and its measurement by messages: a latency, and a bandwidth.

Source: Hockney 1994 (a message of n bytes takes alpha + n beta seconds).
Lecture section: what a cluster would do. Lesson: 15_scale.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from statistics import median
from typing import NamedTuple

import numpy as np

from .ring import allgather
from .send_recv import Communicator, send_recv

SMALL, PROBE, LARGE = 8, 1 << 16, 1 << 22  # bytes of messages: for the latency, and of the bandwidth's
SECONDS = 0.02  # that a measurement may take; on a slow link as many as a message of PROBE bytes needs
MOST = 200  # exchanges of small messages
TAG = 31015


class Link(NamedTuple):
    """What a message costs: ``latency`` in seconds, ``bandwidth`` in bytes per second."""

    latency: float
    bandwidth: float = float("inf")

    def seconds(self, nbytes: float) -> float:
        return self.latency + nbytes / self.bandwidth

    def words(self) -> str:
        """Both numbers: "20 us, 1.2 GB/s"."""
        return f"{self.latency * 1e6:.3g} us, {self.bandwidth / 1e9:.2g} GB/s"


def read_link(text: str) -> Link:
    """The link of "20e-6,1.25e9": seconds, and bytes per second. Raises ValueError for another text."""
    with suppress(ValueError):
        latency, bandwidth = map(float, text.split(","))
        if 0 <= latency < math.inf and 0 < bandwidth < math.inf:
            return Link(latency, bandwidth)
    raise ValueError(
        "a link is its latency in seconds and its bandwidth in bytes per second, as 20e-6,1.25e9; got "
        f"{text!r}"
    )


def measure_pair(comm: Communicator, one: int, other: int, seconds: float = SECONDS) -> Link | None:
    """The link between two ranks, from messages there and back for about ``seconds``; on other ranks None.

    Only these two need to call. Both get the same numbers.
    """
    if comm.rank not in (one, other):
        return None
    first = comm.rank == one
    peer = other if first else one

    def same(value: float) -> float:
        """Rank ``one``'s value on both."""
        if first:
            comm.send(np.array([value]), peer, TAG)
            return value
        return float(comm.recv(peer, TAG)[0])

    return measure(lambda nbytes, repeats: one_way(comm, one, other, nbytes, repeats), same, seconds)


def one_way(comm: Communicator, one: int, other: int, nbytes: int, repeats: int) -> float:
    """The seconds of a message between two ranks: half of a round trip, the median; on other ranks 0."""
    if comm.rank not in (one, other):
        return 0.0
    peer = other if comm.rank == one else one
    x, times = np.zeros(nbytes, np.uint8), []
    for _ in range(repeats):
        start = comm.time()
        if comm.rank == one:
            send_recv(comm, x, peer, peer, TAG, expect=x)
        else:
            comm.recv(peer, TAG, expect=x)
            comm.start_send(x, peer, TAG)()
        times.append((comm.time() - start) / 2)
    return median(times)


def measure_ring(comm: Communicator) -> Link | None:
    """The slowest link of a ring of all ranks, which all send at once; None for one rank.

    All ranks call together, and get the same numbers.
    """
    if comm.size == 1:
        return None
    after, before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size

    def exchange(nbytes: int, repeats: int) -> float:
        x, times = np.zeros(nbytes, np.uint8), []
        for _ in range(repeats):
            start = comm.time()
            send_recv(comm, x, after, before, TAG, expect=x)
            times.append(comm.time() - start)
        return median(times)

    return measure(exchange, lambda value: greatest(comm, value), SECONDS)


def greatest(comm: Communicator, value: float) -> float:
    """The greatest of the ranks' values, on every rank."""
    return max(float(x[0]) for x in allgather(comm, np.array([value])))


def measure(exchange: Callable[[int, int], float], same: Callable[[float], float], seconds: float) -> Link:
    """A link from the seconds of messages. ``same`` makes the ranks agree, so that all exchange as many."""
    exchange(SMALL, 1)  # connects
    each = same(exchange(SMALL, 2))
    latency = same(exchange(SMALL, int(np.clip(seconds / 4 / max(each, 1e-9), 2, MOST))))
    probe = same(exchange(PROBE, 1))
    nbytes = int(np.clip(PROBE * seconds / 8 / max(probe, 1e-9), PROBE, LARGE))
    large = same(exchange(nbytes, 3)) if probe < seconds else probe
    nbytes = nbytes if probe < seconds else PROBE
    return Link(latency, nbytes / max(large - latency, large / 10, 1e-12))
