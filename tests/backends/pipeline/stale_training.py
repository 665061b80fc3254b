"""Serial loops that train with older weights, written plainly: what pipelines without a flush must equal."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from backends.comm import run_ranks
from backends.pipeline.asynchronous import AsynchronousPipeline
from minigrad import nn, ops, optim
from minigrad.data import Batch
from minigrad.module import evaluation_mode
from minigrad.recompute import recomputed
from minigrad.serial import Serial

# The version of stage s of p that batch t's gradient is taken at, before the first one: the first.
SEEN = {
    "stashing": lambda t, s, p: t - (p - 1 - s),
    "vertical": lambda t, s, p: t - (p - 1),
    "2bw": lambda t, s, p: t - (p > 1),
}
# How many steps later stage s applies it.
DELAY = {
    "stashing": lambda s, p: p - 1 - s,
    "vertical": lambda s, p: p - 1 - s,
    "2bw": lambda s, p: int(p > 1),
}
LATE = {"stashing": lambda p: p - 1, "vertical": lambda p: p - 1, "2bw": lambda p: int(p > 1)}


@dataclass
class Run:
    """``weights`` after 0, 1, ... updates; ``gradients`` and ``losses`` by batch; the final ``state``."""

    weights: list
    gradients: list
    losses: list
    state: dict


def train_stale(versions, bounds, build, batches, make, *, micros=1, rates=None, drains=()):
    """Apply to w^t the gradient at the version that each stage saw; a stage has an optimizer of its own.

    The rate is divided by 1 + the updates since that version. At a number of steps in ``drains`` all batches
    are back, and no version of before is used any more.
    """
    model, p = build(np.random.default_rng(0)), len(bounds) - 1
    named = model.named_parameters()
    stage = {name: sum(int(name.split(".")[0]) >= bound for bound in bounds[1:-1]) for name, _ in named}
    methods = [make([w for name, w in named.items() if stage[name] == s]) for s in range(p)]
    run, serial = Run([copies(named)], [], [], {}), Serial(micros)
    for t, batch in enumerate(batches):
        first, last = part_of(t, drains, len(batches))
        for name, w in named.items():
            w.data[...] = run.weights[max(SEEN[versions](t, stage[name], p), first)][name]
            w.grad = None
        run.losses.append(serial.step(model, batch, ops.cross_entropy))
        run.gradients.append({name: w.grad for name, w in named.items()})
        for name, w in named.items():
            w.data[...] = run.weights[t][name]
        for s, method in enumerate(methods):
            if rates is not None:
                method.lr = rates[min(t + DELAY[versions](s, p), last - 1)]
            rate = method.lr
            method.lr *= 1 / (1 + t - max(SEEN[versions](t, s, p), first))
            method.step()
            method.lr = rate
        run.weights.append(copies(named))
    run.state = model.state_dict()
    return run


def part_of(t, drains, steps):
    """The first step of the part between two drains that step ``t`` is in, and the one after its last."""
    return max(d for d in (0, *drains) if d <= t), min(d for d in (*drains, steps) if d > t)


def train_one_batch_late(build, batches, make, *, micros):
    """W(t + 1) = W(t) - lr grad f(W(t - 1)), with two copies of the model: the weights after each update."""
    now, before = build(np.random.default_rng(0)), build(np.random.default_rng(0))
    method, weights, serial = make(now.parameters()), [], Serial(micros)
    for batch in batches:
        serial.step(before, batch, ops.cross_entropy)
        for new, old in zip(now.parameters(), before.parameters(), strict=True):
            new.grad, old.grad = old.grad, None
            old.data[...] = new.data
        method.step()
        weights.append(copies(now.named_parameters()))
    return weights


def follows(strategy, comm, versions, run, build, batches, make, *, rates=None, look=None, drains=()):
    """Assert that gradient, weights and loss are those of ``run`` on this rank, bit for bit, at every step.

    After step ``look`` also what all ranks join, and what they evaluate.
    """
    backend = strategy(comm)
    model = backend.place(build(np.random.default_rng(comm.rank)))  # whose parameters must not matter
    method, (s, p) = make(model.parameters()), (comm.rank, comm.size)
    for t, batch in enumerate(batches):
        where = f"on rank {s} of {p} at step {t}"
        first, last = part_of(t, drains, len(batches))
        method.zero_grad()
        if rates is not None:
            method.lr = rates[t]
        loss = backend.step(model, batch, ops.cross_entropy)
        due = t - DELAY[versions](s, p)
        for name, w in model.named_parameters().items():
            same(w.grad, None if due < first else run.gradients[due][name], f"the gradient of {name} {where}")
            same(w.data, run.weights[max(due, first)][name], f"{name} {where}, before its update,")
        backend.update(model, method)
        for name, w in model.named_parameters().items():
            same(w.data, run.weights[max(due + 1, first)][name], f"{name} {where}")
        same(loss, run.losses[max(t - LATE[versions](p), first)], f"the loss {where}")
        if t == look:
            live = backend.state.full_parameters(model)
            for name, w in model.named_parameters().items():
                same(live[name], w.data, f"the joined {name} {where}")
            serial = build(np.random.default_rng(0))
            serial.load_state_dict(live | {n: a for n, a in serial.state_dict().items() if n not in live})
            if len(live) == len(serial.state_dict()):
                with evaluation_mode(model, serial):
                    same(model(batch.x).data, serial(batch.x).data, f"what is evaluated {where}")
        if t + 1 == last < len(batches):
            backend.state.drain(model)
            for name, w in model.named_parameters().items():
                same(w.data, run.weights[last][name], f"{name} {where}, drained,")
    backend.finalize(model)
    actual = backend.state.full_parameters(model) | backend.state.full_state(model)
    assert actual.keys() == run.state.keys()
    for name, expected in run.state.items():
        same(actual[name], expected, f"{name} on rank {s} of {p} at the end")
    return backend


def same(actual, expected, what):
    assert (actual is None) == (expected is None), f"{what} is {actual}, not {expected}"
    assert np.array_equal(actual, expected), f"{what} is {actual}, not {expected}"


def copies(named):
    return {name: w.data.copy() for name, w in named.items()}


# What is trained

WIDTHS = (4, 6, 5, 7, 6, 3)
TRAINED = (0, 2, 4, 6, 8)


def plain(rng):
    """Layers 0, 2, 4, 6 and 8 are trained."""
    layers = [layer for a, b in pairwise(WIDTHS) for layer in (nn.Linear(a, b, rng=rng), nn.Tanh())]
    model = nn.Sequential(*layers[:-1])
    model.to(dtype=np.float64)
    return model


def build(rng):
    """``plain`` with dropout, running statistics, a segment that is recomputed, and a frozen parameter."""
    model = plain(rng)
    model.layers[1] = nn.Dropout(0.2, rng=np.random.default_rng(1))
    model.layers[3] = nn.BatchNorm(5).to(dtype=np.float64)
    model.layers[4] = recomputed(nn.Sequential(model[4], nn.Tanh(), nn.Linear(7, 7, rng=rng))).to(
        dtype=np.float64
    )
    model.named_parameters()["6.bias"].requires_grad = False
    return model


def batches_of(sizes):
    rng = np.random.default_rng(0)
    return [Batch(rng.normal(size=(n, WIDTHS[0])), rng.integers(0, WIDTHS[-1], n)) for n in sizes]


OPTIMIZERS = {
    "sgd": lambda p: optim.SGD(p, 0.5),
    "momentum": lambda p: optim.SGD(p, 0.2, momentum=0.9, weight_decay=0.01),
    "adam": lambda p: optim.Adam(p, 0.02, weight_decay=0.01),
    "lars": lambda p: optim.LARS(p, 1.0),
}


def law(
    versions,
    ranks=3,
    strategy: Any = AsynchronousPipeline,
    *,
    build=build,
    sizes=(4, 4, 1, 3, 4, 4, 4),
    optimizer="momentum",
    bounds=None,
    extra=0,
    rates=None,
    look=None,
    drains=(),
    **how,
):
    """Assert that ``strategy`` trains as the serial loop with older weights."""
    bounds = bounds or (0, *TRAINED[6 - ranks :], 9)
    micros = ranks + extra if versions == "2bw" else 1
    batches, make = batches_of(sizes), OPTIMIZERS[optimizer]
    run = train_stale(versions, bounds, build, batches, make, micros=micros, rates=rates, drains=drains)

    def work(comm):
        options = {"versions": versions, "micro_batches": micros}
        return follows(
            lambda comm: strategy(comm, bounds, **options),
            comm,
            versions,
            run,
            build,
            batches,
            make,
            rates=rates,
            look=look,
            drains=drains,
        )

    return run_ranks(ranks, work, **how)
