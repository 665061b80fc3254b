"""All forms of the all-reduce, by name, also in nodes of ranks."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from backends.comm import collectives

Allreduce = Callable[..., Any]


def in_nodes(ranks_per_node, comm, x, operator=np.add, between=collectives.ring_allreduce):
    nodes = [rank // ranks_per_node for rank in range(comm.size)]
    return collectives.hierarchical_allreduce(comm, x, operator, nodes, between)


def in_scattered_nodes(comm, x, operator=np.add):
    """Three nodes of uneven size, whose ranks are not neighbours."""
    nodes = [rank**2 % 3 for rank in range(comm.size)]
    return collectives.hierarchical_allreduce(comm, x, operator, nodes, collectives.doubling_allreduce)


IN_ORDER: Mapping[str, Allreduce] = {
    "naive": collectives.naive_allreduce,
    "gather-broadcast": collectives.gather_broadcast_allreduce,
    "tree": collectives.reduce_broadcast_allreduce,
    "doubling": collectives.doubling_allreduce,
    "halving": collectives.rabenseifner_allreduce,
    "hierarchical, in order": partial(in_nodes, 3, between=collectives.doubling_allreduce),
}
BY_NAME: Mapping[str, Allreduce] = {
    name: f for name, f in collectives.ALLREDUCES.items() if name != "mpi"
}  # see tests/mpi
ALLREDUCES: Mapping[str, Allreduce] = {
    **BY_NAME,
    **IN_ORDER,
    "hierarchical, in nodes": partial(in_nodes, 4),
    "hierarchical, scattered": in_scattered_nodes,
}
