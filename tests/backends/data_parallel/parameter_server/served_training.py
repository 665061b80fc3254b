"""Training by parameter servers as a list of events on one machine, and the law that the ranks equal it."""

import heapq
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from minigrad_course.machines.virtual_cluster import VirtualCluster

from backends.comm.collectives.link import Link
from backends.data_parallel import parameter_server
from minigrad import ops, optim
from minigrad.data import shares
from minigrad.serial import Serial
from tests.backends.data_parallel.trained_apart import Plain, batches_of, built, close


@dataclass
class Run:
    """What one rank ended with."""

    state: dict
    staleness: Counter
    lost: dict
    applied: Counter | None
    backend: parameter_server.ParameterServer


def training(
    sizes, make, module: Any = parameter_server, build: Any = Plain, seconds=1.0, drains=(), **settings
):
    """The program of each rank, which drains what is on its way after so many steps."""

    def work(comm):
        backend = module.ParameterServer(comm, **settings)
        model = backend.place(built(build, comm.rank))
        optimizer = make(model.parameters())

        def loss(out, y):
            comm.compute(seconds)
            return ops.cross_entropy(out, y)

        for step, batch in enumerate(batches_of(sizes), 1):
            optimizer.zero_grad()
            backend.step(model, batch, loss)
            backend.update(model, optimizer)
            if step in drains:
                backend.state.drain(model)
        backend.finalize(model)
        applied = None if backend.server is None else backend.server.applied
        return Run(model.state_dict(), backend.staleness_counts, backend.lost, applied, backend)

    return work


def gradients_at(values, batch):
    """The gradients of the mean loss over ``batch`` with the parameters ``values``, by number."""
    model = built(Plain)
    model.load_state_dict(values)
    Serial().step(model, batch, ops.cross_entropy)
    return [None if p.grad is None else p.grad.copy() for p in model.parameters()]


def simulated(slowness, sizes, make, *, staleness=None, softsync=None, stale_rate="damped", drains=()):
    """The final parameters and the staleness counts, by a list of events; messages take no time.

    Worker w takes ``slowness[w]`` seconds for a step. After the numbers of steps in ``drains`` all gradients
    are applied, and the events begin anew, from the parameters and the optimizer's state.
    """
    workers, batches = len(slowness), batches_of(sizes)
    count = workers // (softsync or workers)
    model = built(Plain)
    optimizer = make(model.parameters())
    rate, version, counts = optimizer.lr, 0, Counter()

    def apply(pushes):
        nonlocal version
        ages = [version - used for _, _, used, _, _ in pushes]
        power = 0.5 if isinstance(optimizer, optim.Adagrad | optim.Adam) else 1.0
        gathered = workers if staleness is not None else len(pushes)  # gradients, of a batch's
        scales = [
            {
                "damped": (gathered / workers) ** power / (1 + gathered / workers * age),
                "divided": 1 / max(age, 1),
                "naive": 1.0,
            }[stale_rate]
            for age in ages
        ]
        weights = [n * scale for (_, _, _, n, _), scale in zip(pushes, scales, strict=True)]
        for i, p in enumerate(model.parameters()):
            parts = [g[i] for *_, g in pushes]
            p.grad = None
            if any(g is not None for g in parts):
                p.grad = sum(
                    w / sum(weights) * (0.0 * p.data if g is None else g)
                    for w, g in zip(weights, parts, strict=True)
                )
        optimizer.lr = rate * sum(weights) / sum(n for *_, n, _ in pushes)
        optimizer.step()
        counts.update(ages)
        version += 1

    for first, last in pairwise([0, *drains, len(batches)]):
        copies = {w: (model.state_dict(), version) for w in range(workers)}
        clocks, waiting, pending = [first] * workers, [], []
        events = [(slowness[w], w) for w in range(workers)] if first < last else []
        heapq.heapify(events)
        while events:
            now, w = heapq.heappop(events)
            values, used = copies[w]
            batch = batches[clocks[w]]
            mine = batch[shares(len(batch), workers)[w]]
            pending.append((w, clocks[w], used, len(mine), gradients_at(values, mine)))
            clocks[w] += 1
            waiting.append(w)
            if staleness is None:
                if len(pending) == count:
                    apply(pending)
                    pending = []
            elif min(clocks) > version:
                apply(sorted((p for p in pending if p[1] == version), key=lambda p: p[0]))
                pending = [p for p in pending if p[1] != version - 1]
            for free in list(waiting):
                if staleness is None or clocks[free] - min(clocks) <= staleness:
                    waiting.remove(free)
                    copies[free] = model.state_dict(), version
                    if clocks[free] < last:
                        heapq.heappush(events, (now + slowness[free], free))
        if pending:
            apply(pending)
    return model.state_dict(), counts


def cluster(slowness, servers=1, link=None, **settings):
    """Workers of these speeds and servers on a virtual clock."""
    workers = len(slowness)
    return VirtualCluster(
        workers + servers, link or Link(0.0), slowness=dict(enumerate(slowness)), **settings
    )


def speeds(workers, seed):
    """Seconds of a step for each worker, of which no two sums are equal."""
    return [float(s) for s in np.random.default_rng([seed, 7]).uniform(0.5, 4.0, workers)]


def is_the_simulated_training(
    slowness, sizes, make, module=parameter_server, servers=1, drains=(), **settings
):
    """Assert that all ranks end with the parameters and counts of the event simulation."""
    expected, counts = simulated(slowness, sizes, make, drains=drains, **settings)
    work = training(sizes, make, module, servers=servers, drains=drains, **settings)
    for run in cluster(slowness, servers).run(work):
        close(run.state, expected)
        assert run.staleness == counts, (run.staleness, counts)
        if run.applied is not None:
            assert sum(run.applied.values()) == len(slowness) * len(sizes)
