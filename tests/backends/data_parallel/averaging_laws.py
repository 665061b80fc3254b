"""Laws of backends/data_parallel/averaging.py: what averaged models equal, and what an exchange conserves."""

import numpy as np

from backends.comm.collectives import allgather
from backends.laws import integers
from minigrad.data import shares
from minigrad.serial import Serial
from tests.backends.data_parallel.trained_apart import Net, Plain, batches_of, built, close, step


def mean_of(values, weights):
    return np.asarray(sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights))


def averaged_by_the_textbook(ranks, sizes, make, period, build=Net):
    """The state that each average leaves: every model on its share, then their mean by samples seen."""
    models = [built(build) for _ in range(ranks)]
    optimizers = [make(m.parameters()) for m in models]
    counts, steps_losses = [0] * ranks, []
    for t, batch in enumerate(batches_of(sizes), 1):
        for rank, share in enumerate(shares(len(batch), ranks)):
            if len(mine := batch[share]):
                step(Serial(), models[rank], optimizers[rank], mine)
                counts[rank] += len(mine)
        if t == len(sizes) or (period and t % period == 0):
            dicts = [m.state_dict() for m in models]
            mean = {name: mean_of([d[name] for d in dicts], counts) for name in dicts[0]}
            for m in models:
                m.load_state_dict(mean)
            for i, p in enumerate(optimizers[0].parameters):
                keys = {key for o in optimizers for key in o.state[i]} if period else set()
                for key in keys:
                    zero = 0 if key == "t" else np.zeros_like(p.data)
                    value = mean_of([o.state[i].get(key, zero) for o in optimizers], counts)
                    for o in optimizers:
                        o.state[i][key] = round(float(value)) if key == "t" else value.copy()
            steps_losses.append(mean)
            counts = [0] * ranks
    return steps_losses


def equals_the_textbook(strategy, comm, sizes, make, period):
    """Assert that each average leaves what the textbook's does, on every rank, and that there are so many."""
    expected = averaged_by_the_textbook(comm.size, sizes, make, period)
    backend = strategy(comm)
    model = backend.place(built(Net, comm.rank))
    optimizer = make(model.parameters())
    actual = []
    for t, batch in enumerate(batches_of(sizes), 1):
        step(backend, model, optimizer, batch)
        if period and t % period == 0:
            actual.append(model.state_dict())
    backend.finalize(model)
    if not period or len(sizes) % period:
        actual.append(model.state_dict())
    assert len(actual) == len(expected)
    for one, other in zip(actual, expected, strict=True):
        close(one, other)


def exchanged(strategy, comm, dtype=np.float64, seed=0):
    """This rank's parameters and the center, whole numbers, before an exchange; and after it."""
    backend = strategy(comm)
    model = backend.place(built(Plain).to(dtype=dtype))
    for i, p in enumerate(backend.layout.parameters):
        p.data[...] = integers(p.shape, 1000 * seed + 10 * comm.rank + i, dtype)
    backend.center[...] = integers(backend.center.shape, 1000 * seed + 99, dtype)
    before = backend.layout.weights(), backend.center.copy()
    backend.exchange(model)
    return before, (backend.layout.weights(), backend.center)


def conserves(strategy, comm, **settings):
    """Assert that the sum of models and center is exactly what it was, and the center the same for all."""
    (x, c), (y, d) = exchanged(strategy, comm, **settings)
    total = [np.sum(allgather(comm, a), axis=0) + b for a, b in ((x, c), (y, d))]
    np.testing.assert_array_equal(total[1], total[0])
    assert all(np.array_equal(d, other) for other in allgather(comm, d))
