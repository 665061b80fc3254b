"""Assignment a3 as a student would solve it by its README."""

import numpy as np


def share(n, ranks, rank):
    whole, rest = divmod(n, ranks)
    start = rank * whole + min(rank, rest)
    return start, start + whole + (rank < rest)


def pack(arrays):
    return np.concatenate([a.reshape(-1) for a in arrays])


def unpack(v, shapes):
    slices, start = [], 0
    for shape in shapes:
        stop = start + int(np.prod(shape))
        slices.append(v[start:stop].reshape(shape))
        start = stop
    return slices


def broadcast_parameters(comm, parameters):
    if comm.rank == 0:
        message = pack(parameters)
        for to in range(1, comm.size):
            comm.send(message, to)
        return
    message = comm.recv(0)
    for p, new in zip(parameters, unpack(message, [p.shape for p in parameters])):  # noqa: B905
        p[...] = new


def gradients(comm, parameters, backward, x, y, n):
    loss, grads = 0.0, [np.zeros_like(p) for p in parameters]
    if len(x) > 0:
        loss, grads = backward(x, y)
    weight = len(x) / n
    total = comm.allreduce(weight * pack([*grads, np.array([loss])]))
    *grads, loss = unpack(total, [*[p.shape for p in parameters], ()])
    return float(loss), grads


def buckets(sizes, most):
    results, room = [], 0
    for i in reversed(range(len(sizes))):
        if not results or sizes[i] > room:
            results.append([])
            room = most
        results[-1].append(i)
        room -= sizes[i]
    return results


class Reducer:
    def __init__(self, comm, shapes, buckets):
        self.start, self.shapes, self.buckets = comm.start_allreduce, shapes, buckets
        self.reset()

    def reset(self):
        self.grads, self.waits = {}, []

    def on_grad(self, number, gradient):
        self.grads[number] = gradient.copy()
        while len(self.waits) < len(self.buckets):
            bucket = self.buckets[len(self.waits)]
            if not all(i in self.grads for i in bucket):
                break
            self.launch(bucket)

    def launch(self, bucket):
        grads = [self.grads.get(i, np.zeros(self.shapes[i])) for i in bucket]
        self.waits.append(self.start(pack(grads)))

    def finish(self):
        for bucket in self.buckets[len(self.waits) :]:
            self.launch(bucket)
        sums = [None] * len(self.shapes)
        for bucket, wait in zip(self.buckets, self.waits):  # noqa: B905
            total = wait()
            for i, g in zip(bucket, unpack(total, [self.shapes[i] for i in bucket])):  # noqa: B905
                sums[i] = g
        self.reset()
        return sums
