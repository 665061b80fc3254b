"""Each with each: in step t rank k sends to k + t and receives from k - t, so nobody queues at anyone.

Source: Thakur, Rabenseifner and Gropp 2005 (pairwise exchange).
Lecture section: synchronous data parallelism. Lesson: 05_messages.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minigrad.device import Array

from .blocks import check_parts
from .send_recv import Communicator, Tag, send_recv


def alltoall(comm: Communicator, parts: Sequence[Array]) -> list[Array]:
    """What every rank had for this one, by rank: rank k's ``parts[j]`` becomes rank j's k-th; any shapes.

    p - 1 messages per rank, all bytes but those of the part for itself, which it gets as it is:
    (p-1)(alpha + n/p beta).
    """
    p, rank = comm.size, comm.rank
    blocks = list(check_parts(parts, p, "an all-to-all"))
    for t in range(1, p):
        to, source = (rank + t) % p, (rank - t) % p
        blocks[source] = send_recv(comm, parts[to], to, source, Tag.ALL_TO_ALL)
    return blocks


def barrier(comm: Communicator) -> None:
    """Nobody goes on before everyone has come: after L rounds at distance 1, 2, 4, ... all have heard of all.

    L empty messages per rank: L alpha. Source: Hensgen, Finkel and Manber 1988 (dissemination).
    """
    distance = 1
    while distance < comm.size:
        to, source = (comm.rank + distance) % comm.size, (comm.rank - distance) % comm.size
        send_recv(comm, np.empty(0), to, source, Tag.BARRIER)
        distance *= 2
