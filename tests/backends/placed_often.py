"""Every strategy placed again and again on the same ranks, and what a rank then holds."""

from collections.abc import Callable
from functools import partial

import numpy as np

from backends.comm.communicator import Communicator
from backends.data_parallel import DataParallel
from backends.data_parallel.bucketed import PROGRESS, Bucketed
from backends.data_parallel.parameter_server import ParameterServer
from backends.data_parallel.shared_memory import SharedMemoryDataParallel
from backends.data_parallel.zero.sharded import Sharded
from backends.grid import Grid
from backends.model_parallel.model_parallel import ModelParallel
from backends.pipeline import Pipeline
from backends.registry import GROUPS, find_strategy, strategy_names
from backends.stack import Stack
from minigrad import nn, ops, optim
from minigrad.data import Batch
from minigrad.module import Module
from minigrad.strategy import Strategy
from minigrad.train import fit

Make = Callable[[Communicator], Strategy]


def plain(width: int) -> Module:
    rng = np.random.default_rng(0)
    first, last = nn.Linear(16, width, rng=rng), nn.Linear(40, 5, rng=rng)
    return nn.Sequential(nn.Flatten(), first, nn.ReLU(), nn.Linear(width, 40, rng=rng), last)


def tied(width: int) -> Module:
    rng = np.random.default_rng(0)
    twice = nn.Linear(width, width, rng=rng)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, width, rng=rng), twice, nn.ReLU(), nn.Tanh(), twice)


def images(width: int) -> Module:
    rng = np.random.default_rng(0)
    conv = nn.Conv2d(1, 4, 3, padding=1, rng=rng)
    return nn.Sequential(conv, nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, width, rng=rng))


def around_split(strategy: Make, comm: Communicator) -> Strategy:
    """``strategy`` on the data axis, around layers that are split among one rank."""
    grid = Grid(comm, data=comm.size)
    return Stack(strategy(grid.data), ModelParallel(grid.model, {"1": "column", "3": "row"}))


def piped(strategy: Make, comm: Communicator) -> Strategy:
    """``strategy`` on the data axis, around a pipeline of all ranks."""
    grid = Grid(comm, pipe=comm.size)
    return Stack(strategy(grid.data), Pipeline(grid.pipe))


BY_NAME: dict[str, tuple[Make, Callable[[int], Module]]] = {
    name: (find_strategy(name, axis=axis), plain)
    for axis in GROUPS
    if axis != "sequence"  # these nets take images
    for name in strategy_names(axis)
    if name not in ("serial", "bucketed", "sharded")
}
STRATEGIES: dict[str, tuple[Make, Callable[[int], Module]]] = {
    **BY_NAME,
    **{f"bucketed, {how}": (partial(Bucketed, progress=how), plain) for how in PROGRESS},
    **{f"sharded {n}": (partial(Sharded, stage=n), plain) for n in (1, 2, 3)},
    **{f"sharded {n}, overlap": (partial(Sharded, stage=n, overlap=True), plain) for n in (1, 2, 3)},
    "server, colocated": (partial(ParameterServer, colocated=True), plain),
    "pipeline, tied": (Pipeline, tied),
    "spatial": (lambda comm: ModelParallel(comm, dict.fromkeys("012", "rows")), images),
    "replicated x split": (partial(around_split, DataParallel), plain),
    "bucketed x split": (partial(around_split, Bucketed), plain),
    "one-node x pipeline": (partial(piped, SharedMemoryDataParallel), plain),
    "bucketed x pipeline": (partial(piped, Bucketed), plain),
}


def train(comm: Communicator, name: str, close: bool, width: int = 5) -> None:
    """Take two steps with a new model and a new backend, and drop both; closed, it is placed once more."""
    make, build = STRATEGIES[name]
    rng = np.random.default_rng(1)
    batch = Batch(rng.normal(size=(6, 1, 4, 4)).astype("float32"), rng.integers(0, 5, 6))
    backend = make(comm)
    for _ in range(1 + close):
        model = backend.place(build(width))
        method = optim.SGD(model.parameters(), 0.01, momentum=0.9)
        fit(model, method, ops.cross_entropy, batch, backend=backend, batch_size=3)
        if close:
            backend.close()
            backend.close()
