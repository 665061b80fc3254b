"""Laws of backends/stack.py: a data x pipe x model grid trains as one machine."""

from typing import Any

import numpy as np

from backends.comm import run_ranks
from backends.data_parallel import DataParallel
from backends.grid import Grid
from backends.laws import trains_like_serial
from backends.model_parallel.model_parallel import ModelParallel
from backends.pipeline.layer_wise import LayerWise
from backends.stack import Stack
from minigrad import nn, ops, optim
from minigrad.data import Batch
from tests.nets import grouped


def mlp(rng):
    """Three trained layers, of which the first has a frozen bias."""
    model = nn.Sequential(
        nn.Flatten(),
        nn.Linear(8, 7, rng=rng),
        nn.Tanh(),
        nn.Linear(7, 5, rng=rng),
        nn.Sigmoid(),
        nn.Linear(5, 3, rng=rng),
    )
    vars(model[1])["bias"].requires_grad = False
    return model


def images(rng):
    return nn.Sequential(
        nn.Conv2d(2, 3, 3, padding=1, rng=rng),
        nn.Tanh(),
        nn.BatchNorm(3),
        nn.Conv2d(3, 4, 3, rng=rng),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(16, 3, rng=rng),
    )


def plain_images(rng):
    return nn.Sequential(*(layer for layer in images(rng).layers if not isinstance(layer, nn.BatchNorm)))


OPTIMIZERS = {
    "momentum": lambda p: optim.SGD(p, 0.1, momentum=0.9),
    "clipped": lambda p: optim.SGD(p, 0.5, momentum=0.9, weight_decay=0.1).clipped(0.05),
    "lars": lambda p: optim.LARS(p, 1.0).clipped(0.5),
    "adam": lambda p: optim.Adam(p, 0.01).clipped(1.0),
    "groups": lambda p: grouped(p).clipped(0.05),
}
PLANS = [
    {"1": "column", "3": "row"},
    {"1": "row", "3": "column", "5": "classes"},
    {"1": "gathered", "5": "row"},
    None,
]


def batches_of(shape, sizes):
    rng = np.random.default_rng(0)
    return [Batch(rng.normal(size=(n, *shape)), rng.integers(0, 3, n)) for n in sizes]


def stack(grid, plan, *, data: Any = DataParallel, model: Any = ModelParallel, made: Any = Stack):
    """Data by layers by model, as far as the grid has these axes."""
    layers = [LayerWise(grid.pipe)] if grid.pipe.size > 1 else []
    return made(data(grid.data), *layers, model(grid.model, plan, batch_size=2))


def law(
    shape,
    plan,
    sizes=(5, 1, 4),
    build=mlp,
    sample=(2, 2, 2),
    optimizer="momentum",
    left_out=0,
    seed=0,
    **members,
):
    """Train on a data x pipe x model grid as on one machine."""
    data, pipe, model = shape

    def strategy(comm):
        return stack(Grid(comm, data=data, pipe=pipe, model=model), plan, **members)

    run_ranks(
        data * pipe * model,
        lambda comm: trains_like_serial(
            strategy,
            comm,
            build,
            ops.cross_entropy,
            batches_of(sample, sizes),
            optimizer=OPTIMIZERS[optimizer],
            left_out=left_out,
            seed=seed,
        ),
    )
