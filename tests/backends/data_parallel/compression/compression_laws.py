"""Laws of backends/data_parallel/compression/compressed.py and compressor.py: what compressed data
parallelism is compared with; each law takes the strategy under test.
"""

from __future__ import annotations

import numpy as np

from backends.comm import run_ranks
from backends.comm.collectives import allgather, ring_allreduce
from backends.data_parallel import DataParallel
from backends.data_parallel.compression import compressor_names
from backends.data_parallel.compression.compressed import GROUP
from backends.data_parallel.flat import FlatLayout
from backends.laws import bound_for, distances
from minigrad import ops, optim
from minigrad.lookup import lookup
from minigrad.tensor import Parameter
from tests.nets import small_images_of as batches_of

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


def plain(parameters):
    return optim.SGD(parameters, 0.1)


def momentum(parameters):
    return optim.SGD(parameters, 0.1, momentum=0.9)


def summed(comm, x):
    return ring_allreduce(comm, x)


def low_rank_law(make, ranks, shapes, seed, *, r, full=False):
    """Assert P^T P = I, residuals orthogonal to P, the sum P P^T of the sum, and the same bits everywhere."""
    layout = layout_of(*shapes)
    vs = [np.random.default_rng([seed, rank, 1]).normal(size=(3, layout.size)) for rank in range(ranks)]

    def work(comm):
        compressor = make(r)
        compressor.start(layout, comm.rank, ranks)
        totals = []
        for t in range(3):
            v = vs[comm.rank][t].copy()
            total, own, figures = compressor.exchange(comm, v, np.ones(2), summed)
            assert np.array_equal(v, vs[comm.rank][t]) and np.array_equal(figures, np.full(2, float(ranks)))
            dense = sum(x[t] for x in vs)
            actual = (compressor.matrices(x) for x in (v, own, total, dense))
            for (mine, sent_own, got, expected), p in zip(
                zip(*actual, strict=True), compressor.p, strict=True
            ):
                assert p.shape[1] == min(r, len(mine))
                np.testing.assert_allclose(p.T @ p, np.eye(p.shape[1]), rtol=0, atol=1e-12)
                np.testing.assert_allclose(p.T @ (mine - sent_own), 0, rtol=0, atol=1e-11)
                np.testing.assert_allclose(got, p @ (p.T @ expected), rtol=0, atol=1e-11)
                assert np.linalg.matrix_rank(got) <= r
            if full:
                np.testing.assert_allclose(total, dense, rtol=0, atol=1e-11)
            for x, y in zip(compressor.dense(own), compressor.dense(v), strict=True):
                assert np.array_equal(x, y)
            totals.append(total.tobytes())
        return totals

    first, *others = run_ranks(ranks, work)
    assert all(other == first for other in others)
