"""Assignment a8 as a student would solve it by its README: each part mended in place."""

import numpy as np

from backends.comm import allreduce
from backends.comm.collectives import allgather


def close(a, b):
    assert np.shape(a) == np.shape(b) and np.allclose(a, b, rtol=1e-10, atol=1e-10), f"{a} is not {b}"


def mean_gradient(comm, gradient, samples):
    mine = np.append(gradient * samples, samples)
    total = allreduce(comm, mine)
    return total[:-1] / total[-1] if total[-1] else total[:-1]


def property_1(mean_gradient, comm, gradient, samples):
    result = mean_gradient(comm, gradient, samples)
    weighted = np.array(allgather(comm, np.append(gradient, 1.0) * samples)).sum(axis=0)
    close(result * weighted[-1], weighted[:-1])


class Inbox:
    def __init__(self):
        self.free = []

    def take(self, message):
        buffer = self.free.pop() if self.free else np.empty_like(message)
        buffer[...] = message
        return buffer

    def give_back(self, taken):
        self.free.append(taken)


def property_2(make_inbox, messages, given_back):
    inbox = make_inbox()
    transport = np.zeros_like(messages[0])
    taken = []
    alive = set()
    for i, message in enumerate(messages):
        transport[...] = message
        taken.append(inbox.take(transport))
        alive.add(i)
        transport[...] = 1000.0
        for j in alive:
            close(taken[j], messages[j])
        if given_back[i] is not None:
            alive.remove(given_back[i])
            inbox.give_back(taken[given_back[i]])


def update_tied(comm, weight, gradient, lr, holders):
    if comm.rank not in holders:
        return None
    for rank in holders:
        if rank != comm.rank:
            comm.send(gradient, rank)
    total = gradient.copy()
    for rank in holders:
        if rank != comm.rank:
            total += comm.recv(rank)
    return weight - lr * total


def property_3(update_tied, comm, weight, gradient, lr, holders):
    new = update_tied(comm, weight, gradient, lr, holders)
    everything = allgather(comm, np.zeros(0) if gradient is None else gradient)
    if comm.rank in holders:
        close(new, weight - lr * sum(g for g in everything if g.size))
    else:
        assert new is None


class ErrorFeedback:
    def __init__(self, size, k):
        self.k, self.residual = k, np.zeros(size)

    def compress(self, gradient):
        v = self.residual + gradient
        indices = np.argsort(-abs(v))[: self.k]
        self.residual = v.copy()
        self.residual[indices] = 0
        return indices, v[indices]


def property_4(make_feedback, gradients, k):
    feedback = make_feedback(len(gradients[0]), k)
    owed = np.zeros(len(gradients[0]))
    for gradient in gradients:
        indices, values = feedback.compress(gradient)
        owed += gradient
        owed[indices] -= values
        close(feedback.residual, owed)


def sparse_sum(comm, indices, values, size):
    total = np.zeros(size)
    for where, what in zip(allgather(comm, indices), allgather(comm, values), strict=True):
        total[where] += what
    return total


def property_5(sparse_sum, comm, indices, values, size):
    mine = np.zeros(size)
    mine[indices] = values
    everything = allgather(comm, mine)
    close(sparse_sum(comm, indices, values, size), sum(everything))


def with_halo(comm, x):
    before, after = comm.rank - 1, comm.rank + 1
    for rank, edge in ((before, x[:1]), (after, x[-1:])):
        if 0 <= rank < comm.size:
            comm.send(edge, rank)
    left = comm.recv(before) if before >= 0 else np.zeros(1)
    right = comm.recv(after) if after < comm.size else np.zeros(1)
    return np.concatenate([left, x, right])


class SplitFilter:
    def __init__(self, comm, weight):
        self.comm, self.weight = comm, weight

    def forward(self, x):
        self.padded = with_halo(self.comm, x)
        w, p = self.weight, self.padded
        return w[0] * p[:-2] + w[1] * p[1:-1] + w[2] * p[2:]

    def backward(self, g):
        w, p = self.weight, self.padded
        to_weight = np.array([g @ p[:-2], g @ p[1:-1], g @ p[2:]])
        q = with_halo(self.comm, g)
        return w[2] * q[:-2] + w[1] * q[1:-1] + w[0] * q[2:], to_weight


def property_6(make_filter, comm, weight, steps):
    split = make_filter(comm, weight)
    results = []
    for x, g in steps:
        y, (dx, dw) = split.forward(x), split.backward(g)
        results.append([allgather(comm, part) for part in (x, g, y, dx, dw)])
    for x, g, y, dx, dw in results:
        x, g, y, dx = map(np.concatenate, (x, g, y, dx))
        n = len(x)
        shift = np.array([np.eye(n, k=-1), np.eye(n), np.eye(n, k=1)])
        matrix = np.tensordot(weight, shift, 1)
        close(y, matrix @ x)
        close(dx, matrix.T @ g)
        close(sum(dw), shift @ x @ g)
