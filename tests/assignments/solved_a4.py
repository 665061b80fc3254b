"""Assignment a4 as a student would solve it by its README."""

import numpy as np


def top_k(v, k):
    return np.argsort(-np.abs(v), kind="stable")[:k].astype(np.int32)


def above_threshold(v, threshold):
    return np.flatnonzero(np.abs(v) > threshold).astype(np.int32)


def pack(values, indices):
    data = values.tobytes() + indices.astype(np.int32).tobytes()
    return np.frombuffer(data, dtype=np.uint8).copy()


def unpack(message, dtype):
    size = np.dtype(dtype).itemsize
    k = message.size // (size + 4)
    values = message[: k * size].view(dtype)
    indices = message[k * size :].view(np.int32)
    return values, indices


def feedback(error, g, choose):
    v = error + g
    indices = choose(v)
    sent = np.zeros_like(v)
    sent[indices] = v[indices]
    residual = v.copy()
    residual[indices] = 0
    return sent, residual


def exchange(comm, v, indices):
    total = np.zeros_like(v)
    for message in comm.allgather(pack(v[indices], indices)):
        theirs, places = unpack(message, v.dtype)
        total[places] += theirs
    return total


class Momentum:
    def __init__(self, n, choose, momentum, masking):
        self.choose, self.momentum, self.masking = choose, momentum, masking
        self.velocity = np.zeros(n)
        self.error = np.zeros(n)

    def step(self, g):
        self.velocity = self.momentum * self.velocity + g
        self.error = self.error + self.velocity
        indices = self.choose(self.error)
        sent = np.zeros_like(g)
        sent[indices] = self.error[indices]
        self.error[indices] = 0
        if self.masking:
            self.velocity[indices] = 0
        return sent
