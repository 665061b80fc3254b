"""Averaging strategies over real MPI: period 1 is serial, one message averages all, nothing is lost."""

import pytest

AVERAGING = """
import numpy as np
from backends.comm.collectives import allgather, naive_allreduce
from backends.data_parallel.averaging import ElasticAveraging, LocalSGD, ParallelSGD
from minigrad import nn, ops, optim
from minigrad.serial import Serial
from minigrad.data import Batch

rng = np.random.default_rng(0)
batches = [Batch(rng.normal(size=(n, 6)), rng.integers(0, 3, n)) for n in (7, 2, 5, 1, 9)]


def build(seed):
    rng = np.random.default_rng(seed)
    return nn.Sequential(nn.Linear(6, 5, rng=rng), nn.Tanh(), nn.Linear(5, 3, rng=rng)).to(dtype="float64")


def train(backend, model, each=lambda model: None):
    model = backend.place(model)
    optimizer = optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for batch in batches:
        optimizer.zero_grad()
        backend.step(model, batch, ops.cross_entropy)
        backend.update(model, optimizer)
        each(model)
    backend.finalize(model)
    return model


def flat(model):
    return np.concatenate([p.data.reshape(-1) for p in model.parameters()])


def equal_on_all(x):
    return all((x == other).all() for other in allgather(comm, x))


serial, states = [], []
train(Serial(), build(0), lambda m: serial.append(flat(m)))
train(LocalSGD(comm, period=1), build(comm.rank), lambda m: states.append(flat(m)))
for one, other in zip(states, serial, strict=True):
    np.testing.assert_allclose(one, other, rtol=0, atol=1e-12)

sums = []
def counted(comm, x):
    sums.append(x.size)
    return naive_allreduce(comm, x)

for strategy, count in (
    (ParallelSGD(comm, counted), 1),
    (LocalSGD(comm, counted, period=2), 3),
    (ElasticAveraging(comm, counted, period=2), 3),
):
    sums.clear()
    assert equal_on_all(flat(train(strategy, build(comm.rank)))), strategy
    assert len(sums) == (count if comm.size > 1 else 0), (strategy, sums)

elastic = ElasticAveraging(comm, alpha=0.25)
model = elastic.place(build(0))
for p in model.parameters():
    p.data[...] = np.random.default_rng(comm.rank).integers(-50, 50, p.shape)
elastic.center[...] = 3
before = sum(allgather(comm, flat(model))) + elastic.center
elastic.exchange(model)
assert (sum(allgather(comm, flat(model))) + elastic.center == before).all()
"""

BACKUPS = """
import sys, time
import numpy as np
from backends.comm.collectives import allgather, broadcast
from backends.data_parallel import BackupWorkers, ProportionalDataParallel
from backends.laws import trains_like_serial
from minigrad import nn, ops, optim
from minigrad.serial import Serial
from minigrad.data import Batch, shares

workers, steps = comm.size - 1, 8
rng = np.random.default_rng(0)
batches = [Batch(rng.normal(size=(n, 6)), rng.integers(0, 3, n)) for n in (7, 2, 5, 9, 11, 8, 6, 10)]


def build(rng):
    return nn.Sequential(nn.Linear(6, 50, rng=rng), nn.Tanh(), nn.Linear(50, 3, rng=rng))


def new(seed):
    model = build(np.random.default_rng(seed)).to(dtype="float64")
    return model, optim.SGD(model.parameters(), 0.1, momentum=0.9)


for strategy in (BackupWorkers, lambda comm: ProportionalDataParallel(comm, every=2)):
    trains_like_serial(strategy, comm, build, ops.cross_entropy, batches)

backend = BackupWorkers(comm, backups=1)
model, optimizer = new(comm.rank)
model = backend.place(model)


def loss(out, y):
    if comm.rank == workers:
        time.sleep(0.02)  # this one is late
    return ops.cross_entropy(out, y)


for batch in batches:
    optimizer.zero_grad()
    backend.step(model, batch, loss)
    backend.update(model, optimizer)
backend.finalize(model)
kept = [p.data for p in model.parameters()] + [state["v"] for state in optimizer.state]
state = np.concatenate([x.reshape(-1) for x in kept])
assert all((state == other).all() for other in allgather(comm, state))

# The record says what was done: serial training on the contributors' samples gives the same.
if comm.rank == 0:
    reference, method = new(0)
    for batch, update in zip(batches, backend.updates, strict=True):
        parts = shares(len(batch), workers)
        rows = np.concatenate([np.arange(len(batch))[parts[r - 1]] for r in sorted(update.contributors)])
        assert len(update.contributors) == min(workers - 1, len(batch)), update
        method.zero_grad()
        Serial().step(reference, batch[rows], ops.cross_entropy)
        method.step()
    for one, other in zip(model.parameters(), reference.parameters(), strict=True):
        np.testing.assert_allclose(one.data, other.data, rtol=0, atol=1e-12)
"""


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_averaging_over_processes(pool, n):
    pool.run(n, AVERAGING)


@pytest.mark.parametrize("n", [3, 4])
def test_stragglers_among_processes(pool, n):
    pool.run(n, BACKUPS)
