"""What compressed data parallelism is compared with, and the laws that take the strategy under test."""

from __future__ import annotations

import numpy as np

from backends.comm.collectives import allgather
from backends.data_parallel import DataParallel
from backends.data_parallel.compression import compressor_names
from backends.data_parallel.compression.compressed import GROUP
from backends.data_parallel.flat import FlatLayout
from backends.laws import bound_for, distances
from minigrad import ops, optim
from minigrad.lookup import lookup
from minigrad.tensor import Parameter
from tests.backends.test_data_parallel import batches_of

COMPRESSORS = {name: lookup("compressor", name, {}, GROUP) for name in compressor_names()}


class InOrder(DataParallel):
    """Dense, and summed in the order of the ranks, as compressed gradients are."""

    def place(self, model):
        model = super().place(model)
        self.layout = FlatLayout(self.summary.parameters)
        return model

    def finish(self, model, loss):
        report = self.summary.pack(loss)
        g = self.layout.pack([p.grad for p in self.summary.parameters])
        messages = allgather(self.comm, np.concatenate([g, report]))
        loss, reached = self.summary.unpack(sum(m[g.size :] for m in messages))
        total = self.total_of([m[: g.size] for m in messages])
        for p, x, result in zip(self.summary.parameters, self.layout.views(total), reached, strict=True):
            p.grad = x if result or x.any() else None
        return loss

    def total_of(self, gradients):
        total = np.zeros_like(gradients[0])
        for g in gradients:
            total += g
        return total


class Textbook(InOrder):
    """Every rank plays all ranks: the residuals, velocities and selections of all, by sorting, with masks.

    ``density`` of the whole vector, or of each parameter ``apart``; momentum 0 is top-k without correction.
    """

    def __init__(self, comm, density, *, momentum=0.0, apart=False, masking=True, nesterov=False):
        super().__init__(comm)
        self.density, self.momentum, self.apart = density, momentum, apart
        self.masking, self.nesterov = masking, nesterov

    def place(self, model):
        model = super().place(model)
        self.u = [self.layout.zeros() for _ in range(self.size)]
        self.e = [self.layout.zeros() for _ in range(self.size)]
        return model

    def total_of(self, gradients):
        total = self.layout.zeros()
        for r, g in enumerate(gradients):
            if self.nesterov:
                self.u[r] = self.momentum * (self.u[r] + g)
                v = self.e[r] + (self.u[r] + g)
            else:
                self.u[r] = self.momentum * self.u[r] + g
                v = self.e[r] + self.u[r]
            mask = np.zeros(v.size, bool)
            whole = [(v, mask)]
            for part, result in zip(*map(self.layout.views, (v, mask)), strict=True) if self.apart else whole:
                k = max(1, round(self.density * part.size))
                result.reshape(-1)[np.argsort(-abs(part.reshape(-1)), kind="stable")[:k]] = True
            total += np.where(mask, v, 0)
            self.e[r] = np.where(mask, 0, v)
            if self.masking:
                self.u[r] = np.where(mask, 0, self.u[r])
        return total


def trains_like(
    strategy, reference, comm, build, sizes, *, make, make_reference=None, dtype=np.float64, bound=0.0
):
    """Assert that gradients, losses, parameters and statistics are the reference's, after each step."""
    runs = []
    for kind, optimizer in ((reference, make_reference or make), (strategy, make)):
        backend = kind(comm)
        model = backend.place(build(np.random.default_rng(comm.rank)).to(dtype=dtype))
        runs.append((backend, model, optimizer(model.parameters())))
    for i, batch in enumerate(batches_of(sizes)):
        actual = []
        for backend, model, optimizer in runs:
            optimizer.zero_grad()
            loss = backend.step(model, batch, ops.cross_entropy)
            gradients = {f"grad of {k}": v for k, v in backend.state.full_gradients(model).items()}
            if make_reference is not None:  # the momentum is in another place: only what comes of it is equal
                gradients = {}
            backend.update(model, optimizer)
            actual.append(({"loss": np.array(loss)}, gradients, model.state_dict()))
        for expected, got in zip(*actual, strict=True):
            for name, (_, off) in distances(expected, got).items():
                where = f"in step {i} on rank {comm.rank} of {comm.size}"
                assert off <= bound, f"{name} differs by {off:.1e} {where}"


def nothing_is_lost(strategy, comm, build, sizes, *, dtype=np.float64, lr=0.1):
    """Assert, in each step, that the optimizer got what all ranks did not keep: the sum of e + g - e'."""
    backend = strategy(comm)
    model = backend.place(build(np.random.default_rng(comm.rank)).to(dtype=dtype))
    optimizer = optim.SGD(model.parameters(), lr)
    for i, batch in enumerate(batches_of(sizes)):
        before = backend.error.copy()
        optimizer.zero_grad()
        backend.step(model, batch, ops.cross_entropy)
        lost = sum(allgather(comm, before + backend.bucket.message - backend.error))
        got = backend.layout.pack([p.grad for p in backend.layout.parameters])
        scale = max(abs(before).max(), abs(backend.bucket.message).max(), abs(backend.error).max())
        scale = max(float(x[0]) for x in allgather(comm, np.array([scale])))
        worst = abs(lost - got).max()
        assert worst <= bound_for(dtype) * scale, f"{worst:.1e} was lost or came from nowhere in step {i}"
        backend.update(model, optimizer)


def layout_of(*shapes, dtype: type = np.float64):
    return FlatLayout([Parameter(np.zeros(shape, dtype)) for shape in shapes])


def started(compressor, *shapes, dtype: type = np.float64, rank=0, size=1):
    """``compressor`` for one rank's vector of these shapes."""
    compressor.start(layout_of(*shapes, dtype=dtype), rank, size)
    return compressor


def sent(compressor, v):
    """C(v), dense."""
    total = np.zeros_like(v)
    compressor.add(compressor.compress(v), total)
    return total
