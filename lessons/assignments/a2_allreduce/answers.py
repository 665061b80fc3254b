"""The library's own answers to assignment a2; the ring's with the chunks that the assignment asks for."""

import numpy as np

from backends.comm.collectives import doubling_allreduce, gather_broadcast_allreduce
from backends.comm.collectives.blocks import whole
from backends.comm.collectives.ring import pass_around, reduce_around

__all__ = [
    "doubling_allreduce",
    "gather_broadcast_allreduce",
    "ring_allgather",
    "ring_allreduce",
    "ring_reduce_scatter",
]


def ring_reduce_scatter(comm, x):
    return reduce_around(comm, np.array_split(x, comm.size), (comm.rank + 1) % comm.size, np.add).copy()


def ring_allgather(comm, chunk, length):
    return np.concatenate(pass_around(comm, [chunk] * comm.size, (comm.rank + 1) % comm.size))


def ring_allreduce(comm, x):
    total = ring_allgather(comm, ring_reduce_scatter(comm, x.ravel()), x.size)
    return whole([total], like=x)
