"""All-reduce in two levels: links inside a node are fast, those between nodes few and slow.

Source: Goyal et al. 2017, section 4 (reduce in the server, all-reduce between servers, broadcast).
Lecture section: synchronous data parallelism. Lesson: 05_messages.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from minigrad.device import Array

from ..communicator import Communicator
from .ring import ring_allreduce
from .send_recv import Operator
from .tree import broadcast, reduce

Allreduce = Callable[[Communicator, Array, Operator], Array]


def hierarchical(comm: Communicator, node: int, between: Allreduce = ring_allreduce) -> Callable[..., Array]:
    """An all-reduce for ``comm``, each of whose ranks passes the number of the ``node`` that it is on.

    The groups are made here, once; every rank calls. The first rank of each node speaks for it. On N
    nodes 2 (p - N) messages of n bytes inside them, and those of ``between`` for N ranks: with the ring
    2 N (N - 1) messages, 2 (N - 1) n bytes, 2n (N - 1)/N from each node; 2 (p - 1) n bytes in all.
    Bits are the same on all ranks where ``between`` makes them so. Rank order is kept where nodes are
    consecutive ranks and ``between`` keeps it.
    """
    inside = comm.split(node)
    leaders = comm.split(min(inside.rank, 1))  # the others' group is not used

    def hierarchical_allreduce(group: Communicator, x: Array, operator: Operator = np.add) -> Array:
        if group is not comm:
            raise ValueError(
                f"this all-reduce was made for a communicator of {comm.size} ranks and called with another "
                f"one, of {group.size} ranks; make one for that with hierarchical(comm, node)"
            )
        total = reduce(inside, x, operator)
        if total is not None:
            total = between(leaders, total, operator)
        return broadcast(inside, x if total is None else total)

    return hierarchical_allreduce
