"""Collectives as free functions over send and receive, so that every transport has all of them.

p ranks, n bytes on each, alpha seconds per message, beta per byte, gamma per byte reduced;
L = ceil(log2 p), q = 2^l the largest power of two in p, r = p - q. Every rank calls, in the same
order. Inputs are not changed. Messages count when they leave a rank, empty ones too.
Lecture section: synchronous data parallelism. Lesson: 05_messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from minigrad.declaration import Flag
from minigrad.device import Array
from minigrad.lookup import choices, lookup

from .automatic import ALGORITHMS, AutomaticAllreduce
from .doubling import doubling_allgather, doubling_allreduce
from .halving import rabenseifner_allreduce
from .hierarchical import hierarchical_allreduce
from .link import read_link
from .naive import gather, gather_broadcast_allreduce, naive_allreduce, naive_broadcast, scatter
from .pairwise import alltoall, barrier
from .ring import allgather, reduce_scatter, ring_allreduce, scatter_allgather_broadcast
from .send_recv import Communicator, Operator
from .tree import broadcast, reduce, reduce_broadcast_allreduce, tree_gather, tree_scatter

__all__ = [
    "ALLREDUCE",
    "ALLREDUCES",
    "AutomaticAllreduce",
    "Operator",
    "allgather",
    "allreduce",
    "alltoall",
    "barrier",
    "broadcast",
    "doubling_allgather",
    "doubling_allreduce",
    "find_allreduce",
    "gather",
    "gather_broadcast_allreduce",
    "hierarchical_allreduce",
    "naive_allreduce",
    "naive_broadcast",
    "own_allreduce",
    "rabenseifner_allreduce",
    "reduce",
    "reduce_broadcast_allreduce",
    "reduce_scatter",
    "ring_allreduce",
    "scatter",
    "scatter_allgather_broadcast",
    "tree_gather",
    "tree_scatter",
]

Allreduce = Callable[[Communicator, Array], Array]
"""Sums an array over all ranks of a communicator and returns the sum on every rank."""


def allreduce(comm: Communicator, x: Array, operator: Operator = np.add) -> Array:
    """The sum of ``x`` over all ranks, by the transport's own all-reduce where it has one."""
    return comm.allreduce(x) if operator is np.add else naive_allreduce(comm, x, operator)


def own_allreduce(comm: Communicator, x: Array) -> Array:
    """The sum of ``x`` over all ranks by the transport's own call; ValueError where it has none."""
    if allreduce not in comm.own_collectives:
        others = [name for name in choices(ALLREDUCES, GROUP) if name != "mpi"]
        raise ValueError(
            "only MPI has an all-reduce of its own; start the ranks as MPI processes (--transport mpi), or "
            f"choose another all-reduce: {', '.join(others)}"
        )
    return comm.collective(allreduce, x)


ALLREDUCES: Mapping[str, Allreduce] = {
    "default": allreduce,
    "mpi": own_allreduce,
    "naive": naive_allreduce,
    "gather-broadcast": gather_broadcast_allreduce,
    **ALGORITHMS,
}
"""The all-reduce algorithms by name. Other packages add theirs in the entry-point group of ``GROUP``."""

GROUP = "minigrad.allreduces"
AUTOMATIC = "auto"


def find_allreduce(name: str) -> Allreduce:
    """The all-reduce called ``name``: ours, or one that another package declares in the group ``GROUP``.

    "auto" is a new ``AutomaticAllreduce``; "auto:20e-6,1.25e9" gives it the latency (seconds) and the
    bandwidth (bytes per second) of the links. Raises ValueError, naming the choices, for an unknown name.
    """
    first, colon, link = name.partition(":")
    if first == AUTOMATIC:
        return AutomaticAllreduce(read_link(link) if colon else None)
    return lookup("all-reduce", name, ALLREDUCES, GROUP)


ALLREDUCE = Flag(
    str,
    "algorithm of the all-reduce (default: the transport's own); auto takes the fastest of minigrad's own by "
    "the links that it measures, or by auto:LATENCY,BANDWIDTH in seconds and bytes per second",
    "NAME",
    lambda: [*choices(ALLREDUCES, GROUP), AUTOMATIC],
    find_allreduce,
)
"""The flag of the strategies whose all-reduce can be chosen."""
