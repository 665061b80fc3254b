"""The library's own answers to assignment a4."""

import numpy as np
from minigrad_course.shared.momentum_correction import basic, corrected

from backends.data_parallel.compression.bit_packing import pack_bytes, unpack_bytes
from backends.data_parallel.compression.sparsification import Threshold, TopK, largest


def top_k(v, k):
    return largest(abs(v), k).astype(np.int32)


def above_threshold(v, threshold):
    return Threshold(threshold=threshold).choose(v).astype(np.int32)


def pack(values, indices):
    return pack_bytes(values, indices.astype(np.int32))


def unpack(message, dtype):
    k = message.size // (np.dtype(dtype).itemsize + 4)
    return tuple(unpack_bytes(message, (dtype, k), (np.int32, k)))


def mask(v, choose):
    chosen = np.zeros(v.size, bool)
    chosen[choose(v)] = True
    return chosen


def feedback(error, g, choose):
    sent, _, error = basic(np.zeros_like(g), error, g, mask(error + g, choose), 0.0)
    return sent, error


def exchange(comm, v, indices):
    total = np.zeros_like(v)
    for message in comm.allgather(pack(v[indices], indices)):
        TopK().add(message, total)
    return total


class Momentum:
    def __init__(self, n, choose, momentum, masking):
        self.choose, self.settings = choose, (momentum, masking)
        self.velocity, self.error = np.zeros(n), np.zeros(n)

    def step(self, g):
        momentum, _ = self.settings
        chosen = mask(self.error + (momentum * self.velocity + g), self.choose)
        sent, self.velocity, self.error = corrected(self.velocity, self.error, g, chosen, *self.settings)
        return sent
