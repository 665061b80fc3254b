"""Laws of minigrad/random_mask.py and forward_pass.py: dropout drops the same elements of a sample in
every layout, and others in each layer and step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from backends.comm import run_ranks
from backends.comm.communicator import Communicator
from backends.data_parallel.compression.quantization import QSGD
from backends.data_parallel.data_parallel import DataParallel
from backends.data_parallel.flat import FlatLayout
from backends.grid import Grid
from backends.laws import trains_like_serial
from backends.model_parallel.model_parallel import ModelParallel
from backends.pipeline.pipeline import Pipeline
from backends.stack import Stack
from minigrad import nn, ops, optim, recomputed
from minigrad.forward_pass import ForwardPass
from minigrad.serial import Serial
from minigrad.strategy import Strategy
from minigrad.tensor import Parameter
from tests.nets import Build, batches_of, sample_of

# Networks


def drop(p: float) -> nn.Dropout:
    """All of them have one seed, so only their positions tell them apart."""
    return nn.Dropout(p, rng=np.random.default_rng(3))


class DropsTwice(nn.Module):
    """One Dropout before and behind a layer."""

    def __init__(self, n: int, rng: np.random.Generator):
        self.drop, self.layer = drop(0.4), nn.Linear(n, n, rng=rng)

    def forward(self, x: Any) -> Any:
        return self.drop(self.layer(self.drop(x))) + x


def dense(rng: np.random.Generator) -> nn.Sequential:
    """Layers 0, 2, 4, 5 and 7 are trained; the ranks' own seeds differ in layer 6."""
    return nn.Sequential(
        nn.Linear(4, 12, rng=rng),
        drop(0.3),
        nn.Linear(12, 7, rng=rng),
        drop(0.3),
        nn.Sequential(drop(0.2), nn.Linear(7, 6, rng=rng), nn.Tanh(), drop(0.2)),
        DropsTwice(6, rng),
        nn.Dropout(0.5, rng=rng),
        nn.Linear(6, 3, rng=rng),
    )


def convolutional(rng: np.random.Generator) -> nn.Sequential:
    """Layers 0, 3 and 7 are trained; a sample of layer 1 has more numbers than one block."""
    return nn.Sequential(
        nn.Conv2d(2, 3, 3, padding=1, rng=rng),
        drop(0.3),
        nn.ReLU(),
        nn.Conv2d(3, 4, 3, padding=1, rng=rng),
        drop(0.3),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16, 3, rng=rng),
    )


PLANS: Mapping[Build, Sequence[dict[str, str]]] = {
    dense: (
        {"0": "column", "2": "row", "7": "classes"},
        {"0": "gathered", "2": "column", "4.1": "row", "7": "column"},
    ),
    convolutional: (
        {"0": "filters", "3": "channels", "7": "row"},
        {"0": "gathered-filters", "3": "filters"},
        {"0": "rows", "1": "rows", "2": "rows", "3": "rows", "4": "rows"},
    ),
}

# Laws


class Layout(NamedTuple):
    """So many ranks, and the strategy of each."""

    ranks: int
    strategy: Callable[[Communicator], Strategy]


def drops_like_serial(
    layout: Layout, build: Build, sizes: Sequence[int] = (7, 2, 5), *, oracle: Build | None = None, **how: Any
) -> None:
    """Each gradient on each rank, after each step, is that of the serial run, in float64."""
    batches = batches_of(sizes, sample_of(oracle or build))

    def work(comm: Communicator) -> None:
        trains_like_serial(layout.strategy, comm, build, ops.cross_entropy, batches, oracle=oracle, **how)

    run_ranks(layout.ranks, work)


def by_layers(comm: Communicator, schedule: str = "1f1b", **settings: Any) -> Pipeline:
    return Pipeline(comm, schedule, **{"micro_batches": 4, **settings})


def on_a_grid(
    comm: Communicator,
    shape: tuple[int, int, int],
    plan: dict[str, str],
    data: Any = DataParallel,
    schedule: str = "1f1b",
) -> Stack:
    """Data by stages by neurons."""
    ranks, pipe, model = shape
    grid = Grid(comm, data=ranks, pipe=pipe, model=model)
    stages = [by_layers(grid.pipe, schedule, micro_batches=2)] if pipe > 1 else []
    return Stack(data(grid.data), *stages, ModelParallel(grid.model, plan))


def replicas_drop_like_serial() -> None:
    drops_like_serial(Layout(3, DataParallel), convolutional)


def micro_batches_drop_like_serial() -> None:
    drops_like_serial(Layout(1, lambda comm: Serial(3)), dense)


def stages_drop_like_serial() -> None:
    for recompute in (False, True):
        drops_like_serial(Layout(3, partial(by_layers, recompute=recompute)), dense, (8, 5))


def neurons_drop_like_serial() -> None:
    drops_like_serial(Layout(2, partial(ModelParallel, plan=PLANS[dense][1])), dense)


def recomputed_segments_drop_like_serial() -> None:
    again = lambda rng: recomputed(dense(rng), 3)  # noqa: E731
    drops_like_serial(Layout(2, DataParallel), again, oracle=dense)


def steps_drop_other_elements() -> None:
    """Serial steps with the same weights and samples have losses of their own."""
    model, (batch,) = dense(np.random.default_rng(0)), batches_of((6,))
    backend = Serial()
    losses = [backend.step(model, batch, ops.cross_entropy) for _ in range(4)]
    assert len(set(losses)) == len(losses), f"steps with the same masks: losses {losses}"


def layers_drop_other_elements() -> None:
    """Two layers of one seed, and two calls of one layer, have masks of their own in one pass."""
    x = ones = np.ones((2, 90))
    one, two, inner = drop(0.5), drop(0.5), drop(0.5)
    masks: list[bytes] = []

    class Look(nn.Module):
        def __init__(self, layer: nn.Module):
            self.layer = layer

        def forward(self, x: Any) -> Any:
            masks.append((self.layer(ones).data != 0).tobytes())
            return x

    model = nn.Sequential(Look(one), Look(two), nn.Sequential(Look(inner), Look(inner)), Look(one))
    twice = nn.Sequential(nn.Sequential(Look(one)), model)
    for step in (0, 1):
        with ForwardPass(step, range(2)):
            model(x)
            twice(x)
            model(x)
    for _ in range(2):
        one.train()(x)
        Look(one)(x)
    assert len(set(masks)) == len(masks), f"{len(set(masks))} masks in {len(masks)} calls"
    assert all(mask[:90] != mask[90:] for mask in masks), "two samples have one mask"


def ranks_round_by_their_own_numbers() -> None:
    """Another rank and another step round otherwise; a count of draws is all that goes on."""
    layout, v = FlatLayout([Parameter(np.zeros(200))]), np.random.default_rng(0).normal(size=200)

    def started(rank: int) -> QSGD:
        compressor = QSGD(levels=2)
        compressor.start(layout, rank, 2)
        return compressor

    first, second = started(0), started(1)
    messages = [c.compress(v).tobytes() for c in (first, second, first, second)]
    assert len(set(messages)) == 4, "ranks or steps round by the same numbers"
    later = started(1)
    later.set_own_values({"draws": 1})
    assert later.compress(v).tobytes() == messages[3], "the second step rounds otherwise when it goes on"


OPTIMIZERS = {
    "momentum": lambda ps: optim.SGD(ps, 0.1, momentum=0.9),
    "adam": lambda ps: optim.Adam(ps, 0.01),
}
