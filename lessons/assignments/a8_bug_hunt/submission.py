"""Assignment a8: six parts of parallel training, each with one bug. README.md has what is asked.

Mend each in place, so that it does what its docstring says, and write the property that would have caught
the bug. A property is called with an implementation, right or wrong, on every rank, and raises AssertionError
on at least one of them if what it sees is wrong. It compares only after all communication is done.
You may import NumPy and the collectives of backends.comm.
"""

import numpy as np

from backends.comm import allreduce, broadcast, gather  # noqa: F401
from backends.comm.collectives import allgather

# 1. Data parallelism: the mean over all samples


def mean_gradient(comm, gradient, samples):
    """The mean gradient over all samples of all ranks, a new array, the same on every rank.

    ``gradient`` is the mean over this rank's ``samples``, zeros where it has none. Ranks have different
    numbers of samples. Where no rank has any, the result is zeros.
    """
    return allreduce(comm, gradient) / comm.size


def property_1(mean_gradient, comm, gradient, samples):
    """``mean_gradient(comm, gradient, samples)`` is right."""
    raise NotImplementedError("property 1")


# 2. Pipelines: where activations that came from another stage are kept


class Inbox:
    """Keeps what was received until the micro-batch goes back; memory that was given back is used again."""

    def __init__(self):
        self.buffer = None

    def take(self, message):
        """A copy of ``message``, which stays as it is until it is given back; all have the same shape.

        ``message`` is memory of the transport, which the next message will overwrite.
        """
        if self.buffer is None:
            self.buffer = np.empty_like(message)
        self.buffer[...] = message
        return self.buffer

    def give_back(self, taken):
        """An array that ``take`` returned is not needed any more. Any order will do."""


def property_2(make_inbox, messages, given_back):
    """An inbox, from ``make_inbox()``, keeps every message until it is given back.

    Take ``messages[i]``, then give back what message ``given_back[i]`` was taken as (None: nothing), for
    i = 0, 1, ... The test plays the transport: one array in which every message comes.
    """
    raise NotImplementedError("property 2")


# 3. Tied weights: one weight, used in several stages


def update_tied(comm, weight, gradient, lr, holders):
    """The weight after a step of SGD, a new array: weight - lr * (the sum of the holders' gradients).

    The ranks in ``holders``, in ascending order, each use the weight and have an equal copy of it and a
    gradient of their own use; after the step the copies are equal again. Other ranks call with None for
    both, and get None.
    """
    first = holders[0]
    if comm.rank not in holders:
        return None
    if comm.rank != first:
        comm.send(gradient, first)
        return weight.copy()
    total = gradient.copy()
    for rank in holders[1:]:
        total += comm.recv(rank)
    return weight - lr * total


def property_3(update_tied, comm, weight, gradient, lr, holders):
    """``update_tied(comm, weight, gradient, lr, holders)`` is right."""
    raise NotImplementedError("property 3")


# 4. Compression with error feedback: what is not sent now is sent later


class ErrorFeedback:
    """Sends the k largest entries of a vector; the others wait in ``residual``, a vector of that size."""

    def __init__(self, size, k):
        self.k, self.residual = k, np.zeros(size)

    def compress(self, gradient):
        """(indices, values) of the k entries of residual + gradient of the largest size; they leave it.

        Which of equal size, and in what order, is open. ``gradient`` is left as it was.
        """
        v = self.residual + gradient
        indices = np.argsort(-abs(v))[: self.k]
        self.residual = gradient.copy()
        self.residual[indices] = 0
        return indices, v[indices]


def property_4(make_feedback, gradients, k):
    """``make_feedback(size, k)`` makes something that loses nothing and invents nothing of ``gradients``."""
    raise NotImplementedError("property 4")


# 5. Compression: the sum of vectors of which only some entries are sent


def sparse_sum(comm, indices, values, size):
    """The sum over all ranks of vectors of ``size`` that are ``values`` at ``indices`` and 0 elsewhere.

    A rank's indices are all different, in any order; all ranks have equally many.
    """
    total = np.zeros(size)
    for theirs in allgather(comm, values):
        total[indices] += theirs
    return total


def property_5(sparse_sum, comm, indices, values, size):
    """``sparse_sum(comm, indices, values, size)`` is right."""
    raise NotImplementedError("property 5")


# 6. Split in space: a filter over rows that lie on several ranks


def with_halo(comm, x):
    """``x`` with the last element of the rank before it and the first of the next; 0 at the ends. Correct."""
    before, after = comm.rank - 1, comm.rank + 1
    for rank, edge in ((before, x[:1]), (after, x[-1:])):
        if 0 <= rank < comm.size:
            comm.send(edge, rank)
    left = comm.recv(before) if before >= 0 else np.zeros(1)
    right = comm.recv(after) if after < comm.size else np.zeros(1)
    return np.concatenate([left, x, right])


class SplitFilter:
    """y[i] = w[0] x[i - 1] + w[1] x[i] + w[2] x[i + 1], of a vector whose pieces lie on the ranks in order.

    Each rank has at least one element. Outside the vector is 0.
    """

    def __init__(self, comm, weight):
        self.comm, self.weight = comm, weight

    def forward(self, x):
        """This rank's piece of y."""
        self.padded = with_halo(self.comm, x)
        w, p = self.weight, self.padded
        return w[0] * p[:-2] + w[1] * p[1:-1] + w[2] * p[2:]

    def backward(self, g):
        """(gradient of this rank's x, this rank's part of that of w), where ``g`` is its piece of y's.

        The part is the sum over this rank's elements of y; the parts of all ranks add up to the gradient.
        """
        w, p = self.weight, self.padded
        to_weight = np.array([g @ p[:-2], g @ p[1:-1], g @ p[2:]])
        q = p.copy()
        q[1:-1] = g
        return w[2] * q[:-2] + w[1] * q[1:-1] + w[0] * q[2:], to_weight


def property_6(make_filter, comm, weight, steps):
    """``make_filter(comm, weight)`` makes a filter that is right in each of ``steps``.

    Each is this rank's (x, g), and means forward(x), then backward(g).
    """
    raise NotImplementedError("property 6")
