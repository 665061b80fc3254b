"""Laws of backends/data_parallel/averaging.py: DiLoCo is the loop of the paper."""

import numpy as np

from minigrad import optim
from minigrad.data import shares
from minigrad.serial import Serial
from tests.backends.data_parallel.trained_apart import Net, Plain, batches_of, built, close, states, step


def trained(strategy, comm, sizes, make, build=Net):
    """The model's state after each step and at the end, and the optimizer's state at the end."""
    backend = strategy(comm)
    model = backend.place(built(build, comm.rank))
    optimizer, losses = make(model.parameters()), []
    for batch in batches_of(sizes):
        step(backend, model, optimizer, batch)
        losses.append(model.state_dict())
    backend.finalize(model)
    return [*losses, model.state_dict(), states(optimizer)]


def diloco_by_the_textbook(ranks, sizes, period, rate, momentum):
    """The common model after every outer step: p models one after the other, then Nesterov on their mean."""
    models = [built(Plain) for _ in range(ranks)]
    optimizers = [optim.SGD(m.parameters(), 0.1, momentum=0.9) for m in models]
    common, counts, losses = models[0].state_dict(), [0] * ranks, []
    velocity = {name: np.zeros_like(value) for name, value in common.items()}
    for t, batch in enumerate(batches_of(sizes), 1):
        for rank, share in enumerate(shares(len(batch), ranks)):
            if len(mine := batch[share]):
                step(Serial(), models[rank], optimizers[rank], mine)
                counts[rank] += len(mine)
        if t % period == 0 or t == len(sizes):
            dicts = [m.state_dict() for m in models]
            for name in common:
                mean = sum(n * d[name] for n, d in zip(counts, dicts, strict=True)) / sum(counts)
                gradient = common[name] - mean
                velocity[name] = momentum * velocity[name] + gradient
                common[name] = common[name] - rate * (gradient + momentum * velocity[name])
            for m in models:
                m.load_state_dict(common)
            losses.append(dict(common))
            counts = [0] * ranks
    return losses


def is_the_textbook(strategy, comm, sizes, period, rate, momentum):
    """Assert that after every outer step all ranks have the textbook's model."""
    make = lambda ps: optim.SGD(ps, 0.1, momentum=0.9)  # noqa: E731
    *after, last, _ = trained(strategy, comm, sizes, make, Plain)
    actual = after[period - 1 :: period] + [last] * (len(sizes) % period > 0)
    expected = diloco_by_the_textbook(comm.size, sizes, period, rate, momentum)
    for one, other in zip(actual, expected, strict=True):
        close(one, other)
