"""Assignment a4: gradients are sent in part, nothing is lost, and momentum is right. README.md has the text.

Vectors are one-dimensional NumPy arrays of float32 or float64; results have the dtype of what came in, and
are new memory; what comes in is left as it is. Import NumPy, and nothing of the library.
"""

import numpy as np  # noqa: F401


def top_k(v, k):
    """The indices, as int32, of the k entries of ``v`` that are largest in size; all where there are fewer.

    In any order; among entries of one size any may be taken.
    """
    raise NotImplementedError("task 1: the k largest sizes")


def above_threshold(v, threshold):
    """The indices, as int32, of the entries of ``v`` whose size exceeds ``threshold``; in any order."""
    raise NotImplementedError("task 1: all that exceed a threshold")


def pack(values, indices):
    """One vector of uint8: the bytes of ``values``, then those of ``indices`` as int32."""
    raise NotImplementedError("task 2: two arrays as bytes")


def unpack(message, dtype):
    """(values, indices) of what ``pack`` made of values of that dtype; they may be views of ``message``."""
    raise NotImplementedError("task 2: bytes as two arrays")


def feedback(error, g, choose):
    """(sent, error): what a rank sends of its gradient ``g``, and what it keeps for the next step.

    What it has to give is v = error + g. ``choose(v)`` gives the indices of the entries to send: ``sent``
    has these and is 0 elsewhere, the new error has the others and is 0 there. Call ``choose`` once.
    """
    raise NotImplementedError("task 3: accumulate, choose, keep the rest")


def exchange(comm, v, indices):
    """The sum over all ranks, as a vector of ``v``'s length, of the entries ``indices`` of each rank's ``v``.

    Ranks choose different entries, and different numbers of them. ``comm.allgather(x)`` is the list of every
    rank's vector ``x``, by rank; they may differ in length. Call it once, with the bytes of your values and
    indices, and add in the order of the ranks: then all have the same bits.
    """
    raise NotImplementedError("task 4: pack, gather, add")


class Momentum:
    """One rank's half of deep gradient compression: momentum acts before entries are chosen."""

    def __init__(self, n, choose, momentum, masking):
        """Called once, for gradients of ``n`` entries in float64; ``choose`` is as in task 3."""
        raise NotImplementedError("task 5: a velocity and an error, both 0")

    def step(self, g):
        """What is sent of the gradient ``g``: a vector of ``n`` entries, 0 where nothing is."""
        raise NotImplementedError("task 5: velocity, accumulate, choose, keep, mask")
