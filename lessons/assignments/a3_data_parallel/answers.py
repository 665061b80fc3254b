"""The library's own answers to assignment a3."""

from collections import deque
from types import SimpleNamespace

import numpy as np

from backends.comm.collectives import naive_broadcast
from backends.data_parallel.bucket import Bucket
from backends.data_parallel.flat import FlatLayout
from backends.data_parallel.flat import buckets as fill_buckets
from minigrad.data import shares
from minigrad.device import unflatten
from minigrad.tensor import Parameter


def share(n, ranks, rank):
    mine = shares(n, ranks)[rank]
    return mine.start, mine.stop


def broadcast_parameters(comm, parameters):
    flat = FlatLayout([Parameter(x) for x in parameters])
    for x, sent in zip(parameters, flat.views(naive_broadcast(comm, flat.pack(parameters))), strict=True):
        x[...] = sent


def gradients(comm, parameters, backward, x, y, n):
    flat = FlatLayout([Parameter(p) for p in parameters])
    loss, mine = backward(x, y) if len(x) else (0.0, [None] * len(parameters))
    total = comm.allreduce(np.append(flat.pack(mine), loss) * (len(x) / n))
    return float(total[-1]), flat.views(total[:-1])


def buckets(sizes, most):
    parameters = [
        SimpleNamespace(number=i, data=SimpleNamespace(nbytes=n, dtype=float)) for i, n in enumerate(sizes)
    ]
    return [[p.number for p in bucket] for bucket in fill_buckets(parameters, most)]


class Reducer:
    def __init__(self, comm, shapes, buckets):
        self.start = comm.start_allreduce
        self.parameters = [Parameter(np.zeros(shape)) for shape in shapes]
        groups = [[self.parameters[i] for i in group] for group in buckets]
        self.buckets = [Bucket(group, FlatLayout(group).zeros()) for group in groups]
        self.bucket_of = {p: bucket for bucket in self.buckets for p in bucket.views}
        self.waiting = deque(self.buckets)
        self.sums = {}

    def on_grad(self, number, gradient):
        parameter = self.parameters[number]
        parameter.grad = gradient
        self.bucket_of[parameter].fill([parameter])
        parameter.grad = None
        while self.waiting and not self.waiting[0].missing:
            self.send()

    def send(self):
        bucket = self.waiting.popleft()
        self.sums[bucket] = self.start(bucket.message)

    def finish(self):
        while self.waiting:
            self.waiting[0].fill(self.waiting[0].missing)
            self.send()
        sums = {}
        for bucket in self.buckets:
            sums |= zip(bucket.views, unflatten(self.sums.pop(bucket)(), bucket.views), strict=True)
            bucket.missing = set(bucket.views)
        self.waiting.extend(self.buckets)
        return [sums[p] for p in self.parameters]
