"""Laws of backends/data_parallel/flat.py and backends/data_parallel/parameter_server/consistency.py:
shards are even, and a worker leads by its bound at most.
"""

import numpy as np

from backends.data_parallel.flat import FlatLayout
from backends.data_parallel.parameter_server import ParameterServer
from minigrad import nn, ops, optim
from tests.backends.data_parallel.parameter_server.served_training import cluster
from tests.backends.data_parallel.trained_apart import OPTIMIZERS, Plain, batches_of, built

METHODS = {
    "sgd": OPTIMIZERS["sgd"],
    "momentum": OPTIMIZERS["momentum"],
    "adagrad": lambda parameters: optim.Adagrad(parameters, 0.1),
    "groups": OPTIMIZERS["groups"],
}


def leads(comm, backend, clocks, steps):
    """Train, and give the largest number of steps that this worker was ahead of the slowest."""
    model = backend.place(built(Plain))
    optimizer = METHODS["sgd"](model.parameters())
    lead = [0]

    def loss(out, y):
        lead.append(clocks[comm.rank] - min(clocks))
        comm.compute(1.0)
        return ops.cross_entropy(out, y)

    for batch in batches_of([9] * steps):
        optimizer.zero_grad()
        backend.step(model, batch, loss)
        if backend.server is None:
            clocks[comm.rank] += 1
        backend.update(model, optimizer)
    backend.finalize(model)
    return max(lead), max(backend.staleness_counts)


def a_straggler_holds_the_others_up_only_after_s_steps(s, strategy=ParameterServer):
    clocks = [0] * 3
    make = lambda comm: strategy(comm, staleness=s)  # noqa: E731
    runs = cluster([1.0, 1.1, 50.0]).run(lambda comm: leads(comm, make(comm), clocks, 6))
    assert [lead for lead, _ in runs[:3]] == [s, s, 0]
    assert runs[0][1] == s


def shards_are_even_and_cover_everything_once(n, servers, layout_of=FlatLayout):
    sizes = [n // 3 + 1, n % 7 + 1, n]
    parameters = [nn.Parameter(np.zeros(size)) for size in sizes]
    if servers > sum(sizes):
        return
    layout = layout_of(parameters, servers)
    counts = [np.zeros(size) for size in sizes]
    for i in range(servers):
        part = layout.parts[i]
        assert part.stop - part.start in (sum(sizes) // servers, -(-sum(sizes) // servers))
        for piece in layout.segments(i):
            counts[piece.n][piece.within] += 1
            assert piece.within.stop - piece.within.start == piece.place.stop - piece.place.start
        assert sum(p.place.stop - p.place.start for p in layout.segments(i)) == part.stop - part.start
    assert all((s == 1).all() for s in counts)
