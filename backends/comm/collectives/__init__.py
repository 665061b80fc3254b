"""Collectives as free functions over send and receive, so that every transport has all of them.

p ranks, n bytes on each, alpha seconds per message, beta per byte, gamma per byte reduced;
L = ceil(log2 p), q = 2^l the largest power of two in p, r = p - q. Every rank calls, in the same
order. Inputs are not changed. Messages count when they leave a rank, empty ones too.
Lecture section: synchronous data parallelism. Lesson: 05_messages.
"""

from .doubling import doubling_allgather, doubling_allreduce
from .exchange import Operator
from .halving import rabenseifner_allreduce
from .hierarchical import hierarchical
from .naive import (
    allreduce,
    gather,
    gather_broadcast_allreduce,
    naive_allreduce,
    naive_broadcast,
    scatter,
)
from .pairwise import alltoall, barrier
from .ring import allgather, reduce_scatter, ring_allreduce, scatter_allgather_broadcast
from .tree import broadcast, reduce, reduce_broadcast_allreduce, tree_gather, tree_scatter

__all__ = [
    "Operator",
    "allgather",
    "allreduce",
    "alltoall",
    "barrier",
    "broadcast",
    "doubling_allgather",
    "doubling_allreduce",
    "gather",
    "gather_broadcast_allreduce",
    "hierarchical",
    "naive_allreduce",
    "naive_broadcast",
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
