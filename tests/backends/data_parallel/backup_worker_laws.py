"""Laws of backends/data_parallel/backup_workers.py: each update is the serial one on what contributed."""

from dataclasses import dataclass

import numpy as np

from backends.data_parallel import backup_workers
from backends.laws import bound_for
from minigrad import ops, optim
from minigrad.data import Batch, shares
from minigrad.serial import Serial
from minigrad.tape import current_tape
from tests.backends.data_parallel.trained_apart import Plain, batches_of, built, close, states


def clipped(parameters):
    """Momentum, and gradients that are scaled in place at nearly every step."""
    return optim.SGD(parameters, 0.1, momentum=0.9).clipped(0.1)


@dataclass
class Run:
    """What one rank saw."""

    updates: list
    gradients: list
    losses: list
    state: dict


def training(sizes, make, module=backup_workers, backups=1, build: type = Plain, drains=()):
    """The program of each rank, which drains what is on its way after so many steps."""

    def work(comm):
        backend = module.BackupWorkers(comm, backups=backups)
        model = backend.place(built(build, comm.rank))
        optimizer = make(model.parameters())
        gradients, losses = [], []

        def loss(out, y):
            if current_tape.get() is not None:  # in training, and not where it is checked
                comm.compute(1.0)
            return ops.cross_entropy(out, y)

        for done, batch in enumerate(batches_of(sizes)):
            if done in drains:
                backend.state.drain(model)
            optimizer.zero_grad()
            losses.append(backend.step(model, batch, loss))
            gradients.append(
                {k: g.copy() for k, g in backend.state.full_gradients(model).items() if g is not None}
            )
            backend.update(model, optimizer)
        backend.finalize(model)
        return Run(backend.updates, gradients, losses, model.state_dict() | states(optimizer))

    return work


def is_serial_on_its_contributors(runs, sizes, make, backups):
    """Assert that each update averaged the first N gradients, none stale or twice, and all ranks made it."""
    workers = len(runs) - 1
    model = built(Plain)
    optimizer = make(model.parameters())
    updates = runs[0].updates
    assert [u.version for u in updates] == list(range(len(sizes)))
    for batch, update in zip(batches_of(sizes), updates, strict=True):
        parts = dict(enumerate(shares(len(batch), workers), 1))
        busy = {rank for rank, part in parts.items() if part.start < part.stop}
        assert len(update.contributors) == min(workers - backups, len(busy))
        assert len({*update.contributors, *update.dropped}) == len(update.contributors) + len(update.dropped)
        assert {*update.contributors, *update.dropped} <= busy
        taken = [batch[parts[rank]] for rank in sorted(update.contributors)]
        union = Batch(np.concatenate([t.x for t in taken]), np.concatenate([t.y for t in taken]))
        optimizer.zero_grad()
        loss = Serial().step(model, union, ops.cross_entropy)
        expected = {n: g.copy() for n, g in Serial().state.full_gradients(model).items() if g is not None}
        for run in runs:
            close(run.gradients[update.version], expected)
            assert abs(run.losses[update.version] - loss) < bound_for(np.float64) * max(1, loss)
        optimizer.step()
    for run in runs:
        close(run.state, model.state_dict() | states(optimizer))
        close(run.state, runs[0].state, bound=0)
        assert run.losses == runs[0].losses
