"""All-reduce in two levels: links inside a node are fast, those between nodes few and slow.

Source: Goyal et al. 2017, section 4 (reduce in the server, all-reduce between servers, broadcast).
Lecture section: synchronous data parallelism. Lesson: 05_messages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from minigrad.device import Array

from .ring import ring_allreduce
from .send_recv import Communicator, Operator
from .tree import broadcast, reduce


def hierarchical_allreduce(
    comm: Communicator,
    x: Array,
    operator: Operator = np.add,
    nodes: Sequence[int] | None = None,
    between: Callable[[Communicator, Array, Operator], Array] = ring_allreduce,
) -> Array:
    """The sum of ``x`` over all ranks: in each node first, then ``between`` the first ranks of the nodes.

    ``nodes`` has the number of each rank's node, by default its machine. On N nodes 2 (p - N) messages of n
    bytes inside them, and those of ``between`` for N ranks: with the ring 2 N (N - 1) messages, 2 (N - 1) n
    bytes, 2n (N - 1)/N from each node; 2 (p - 1) n bytes in all. Bits are the same on all ranks where
    ``between`` makes them so. Rank order is kept where nodes are consecutive ranks and ``between`` keeps it.
    """
    nodes = comm.nodes if nodes is None else nodes
    if len(nodes) != comm.size:
        raise ValueError(
            f"{len(nodes)} nodes were passed for {comm.size} ranks; pass the number of each rank's node"
        )
    ranks = range(comm.size)
    inside = comm.subgroup([rank for rank in ranks if nodes[rank] == nodes[comm.rank]])
    total = reduce(inside, x, operator)
    if total is not None:
        leaders = [rank for rank in ranks if nodes[rank] not in nodes[:rank]]
        total = between(comm.subgroup(leaders), total, operator)
    return broadcast(inside, x if total is None else total)
