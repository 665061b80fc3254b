"""Assignment a2: all-reduce from nothing but send and receive. README.md has the algorithms and the costs.

Every rank calls the same function. ``comm`` has ``rank``, ``size``, ``send(x, to)``,
``start_send(x, to)`` (call what it returns to finish), ``recv(source)`` and ``start_recv(source)``.

In all functions: p = comm.size, k = comm.rank; the result is a new array of the input's dtype; the input
is left as it was; a send may wait until its receiver receives. Import NumPy, and nothing of the library.
"""

import numpy as np  # noqa: F401


def gather_broadcast_allreduce(comm, x):
    """The sum of ``x`` over all ranks, on every rank, in the shape of ``x``; any shape, any memory order.

    Rank 0 receives the array of every other rank, adds, and sends the sum to each: rank 0 sends p - 1
    messages, the others 1, each of x.nbytes.
    """
    raise NotImplementedError("task 1: gather, add, broadcast")


def ring_reduce_scatter(comm, x):
    """Chunk (k + 1) mod p of the sum of the one-dimensional ``x`` over all ranks, on rank k.

    The chunks are those of ``numpy.array_split(x, p)``. p - 1 messages from each rank, all to its right
    neighbour k + 1, of one chunk each, empty ones too: x.nbytes without chunk k + 1.
    """
    raise NotImplementedError("task 2: in step t send chunk k - t, add what comes to chunk k - t - 1")


def ring_allgather(comm, chunk, length):
    """The whole one-dimensional array of ``length`` elements, where rank k brings chunk (k + 1) mod p of it.

    The chunks are those of ``numpy.array_split``. p - 1 messages from each rank, all to its right
    neighbour k + 1, of one chunk each, empty ones too: all bytes but those of chunk k + 2.
    """
    raise NotImplementedError("task 3: pass on what came last")


def ring_allreduce(comm, x):
    """The sum of ``x`` over all ranks, on every rank, in the shape of ``x``; any shape, any memory order.

    The two rings one after the other: 2 (p - 1) messages from each rank, and of n = x.nbytes bytes
    2n - |chunk k + 1| - |chunk k + 2|, for the chunks of ``numpy.array_split`` of the flat array.
    """
    raise NotImplementedError("task 4: reduce-scatter, then all-gather")


def doubling_allreduce(comm, x):
    """The sum of ``x`` over all ranks, on every rank, in the shape of ``x``; any shape, any memory order.

    Let p = q + r, q = 2^l the largest power of two in p. Each even rank of the first 2r hands its array to
    the odd one after it, and gets the sum back at the end: 1 message. The q others swap whole arrays in l
    rounds: l messages, and one more from a rank that spoke for another. Each is of x.nbytes.
    """
    raise NotImplementedError("task 5: swap with the rank at distance 1, 2, 4, ...")
