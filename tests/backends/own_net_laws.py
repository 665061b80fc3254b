"""Laws of backends/hooks.py: a net of one's own, with two inputs, buffers, a loss of one's own and hooks,
trains by a strategy as it does serially.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from backends.comm import run_ranks
from backends.comm.communicator import Communicator
from backends.data_parallel import DataParallel, NaiveDataParallel
from backends.data_parallel.bucketed import Bucketed
from backends.data_parallel.elastic import Elastic
from backends.data_parallel.proportional import ProportionalDataParallel
from backends.data_parallel.shared_memory import SharedMemoryDataParallel
from backends.data_parallel.zero.naive import NaiveSharded
from backends.data_parallel.zero.sharded import Sharded
from backends.expert_parallel import ExpertParallel
from backends.grid import Grid
from backends.hooks import Hooks
from backends.laws import distances
from backends.model_parallel.model_parallel import ModelParallel
from backends.pipeline import LayerWise, Pipeline
from backends.pipeline.naive import NaivePipeline
from backends.sequence_parallel import SequenceParallel
from backends.stack import Stack
from minigrad import Tape, Tensor, nn, ops, optim
from minigrad.data import Batch
from minigrad.recompute import recomputed
from minigrad.serial import Serial
from minigrad.strategy import Strategy
from minigrad.weighted_mean import WeightedMean
from tests.backends.checkpoint import resume_laws
from tests.nets import OPTIMIZERS

LEFT, RIGHT, WIDTH = 3, 2, 4
BOUND = 1e-12


class Towers(nn.Module):
    """Two inputs, side by side in one array (N, LEFT + RIGHT), and the mean of the left one so far, a buffer.

    In training ``center`` moves by ``momentum`` to the mean of the samples; ``scale`` is a constant.
    """

    def __init__(self, rng: np.random.Generator, momentum: float):
        self.left, self.right = nn.Linear(LEFT, WIDTH, rng=rng), nn.Linear(RIGHT, WIDTH, rng=rng)
        self.gate, self.momentum = Gate(rng), momentum
        self.register_buffer("center", np.full(WIDTH, 0.1))
        self.register_buffer("scale", np.linspace(0.5, 1.5, WIDTH))

    def forward(self, x: Any) -> Tensor:
        h = self.left(x[:, :LEFT])
        center = vars(self)["center"]
        y = self.gate(h - center.copy(), right=self.right(x[:, LEFT:]) * vars(self)["scale"])
        if self.training and len(h):
            center += self.momentum * (h.data.mean(axis=0) - center)
        return y


class Gate(nn.Module):
    """Two inputs, of which one is a keyword."""

    def __init__(self, rng: np.random.Generator):
        self.shift = nn.Parameter(rng.normal(size=WIDTH))

    def forward(self, left: Any, *, right: Any) -> Tensor:
        return ops.tanh(left) * ops.sigmoid(right + self.shift)


def net(rng: np.random.Generator, momentum: float = 0.3) -> nn.Sequential:
    hidden = nn.Linear(WIDTH, 5, rng=rng), nn.ReLU(), nn.Linear(5, 5, rng=rng), nn.Tanh()
    return nn.Sequential(Towers(rng, momentum), *hidden, nn.Linear(5, 2, rng=rng))


def mean_over_samples(out: Tensor, y: Any) -> Tensor:
    d = out - y
    return (ops.sqrt(1 + d[:, 0] * d[:, 0]) + 0.5 * d[:, 1] * d[:, 1]).mean()


def total(out: Tensor, y: Any) -> Tensor:
    d = (out - y) * (y > -0.5)
    return (d * d * d * d + d * d).sum()


LOSSES: dict[str, Any] = {
    "mean over samples": mean_over_samples,
    "weighted mean": WeightedMean(total, lambda y: (y > -0.5).sum()),
    "sum": nn.SmoothL1Loss(beta=0.5, reduction="sum"),
}


class Layout(NamedTuple):
    """A strategy on some ranks; ``micro`` are the micro-batches of the serial run that it equals."""

    ranks: int
    strategy: Callable[[Communicator], Strategy]
    micro: int = 1
    moves: bool = True  # buffers that samples move are the serial run's


PLAN = {"0.left": "column", "0.right": "gathered", "1": "column", "3": "row"}


def by_all_axes(comm: Communicator) -> Strategy:
    grid = Grid(comm, data=2, pipe=2, model=2)
    pipeline = Pipeline(grid.pipe, "1f1b", bounds=(0, 2, 6), micro_batches=1)
    return Stack(DataParallel(grid.data), pipeline, ModelParallel(grid.model, PLAN))


LAYOUTS = {
    "naive data": Layout(3, NaiveDataParallel, moves=False),
    "data": Layout(3, DataParallel),
    "data, synchronized": Layout(2, partial(DataParallel, batch_norm="synchronized")),
    "bucketed": Layout(2, partial(Bucketed, bucket_bytes=100)),
    "naive zero": Layout(2, NaiveSharded, moves=False),
    **{
        f"zero {stage}": Layout(2, partial(Sharded, stage=stage, overlap=stage == 3, bucket_bytes=100))
        for stage in (1, 2, 3)
    },
    "proportional": Layout(2, ProportionalDataParallel),
    "shared memory": Layout(2, SharedMemoryDataParallel),
    "elastic": Layout(2, Elastic),
    "experts": Layout(2, ExpertParallel),
    "model": Layout(2, partial(ModelParallel, plan=PLAN)),
    "layers": Layout(3, LayerWise),
    "naive pipe": Layout(2, partial(NaivePipeline, micro_batches=2), micro=2),
    **{
        name: Layout(3 if name == "gpipe" else 2, partial(Pipeline, schedule=name, micro_batches=4), micro=4)
        for name in ("gpipe", "1f1b", "interleaved", "zb-h1", "zb-v", "dualpipe-v")
    },
    "data, pipe, model": Layout(8, by_all_axes),
}


def batches_of(sizes: Sequence[int], seed: int) -> list[Batch]:
    """Targets of which the first sample's count for the weighted mean."""
    rng = np.random.default_rng(seed)
    batches = []
    for n in sizes:
        y = rng.normal(size=(n, 2))
        y[0] = abs(y[0])
        batches.append(Batch(rng.normal(size=(n, LEFT + RIGHT)), y))
    return batches


class Sight:
    """Hooks that change an output and two gradients, and sum what they see of another layer."""

    def __init__(self, model: nn.Module):
        self.outputs = self.gradients = 0.0
        self.hooks = Hooks(
            model,
            forward={"2": lambda y: ops.tanh(y) + 0.5 * y, "5": self.output},
            backward={"0": lambda g: 0.7 * g, "3": lambda g: g * 1.5, "5": self.gradient},
        )

    def output(self, y: Tensor) -> None:
        self.outputs += float((y.data**2).sum())

    def gradient(self, g: Any) -> None:
        self.gradients += float((g**2).sum())


class Trained(NamedTuple):
    losses: list[float]
    arrays: dict[str, np.ndarray]
    gradients: dict[str, np.ndarray | None]
    sums: tuple[float, float]


def train(backend: Strategy, build: Any, batches: Sequence[Batch], loss: Any, rank: int = 0) -> Trained:
    model = backend.place(build(np.random.default_rng(rank)).to(dtype=np.float64))
    optimizer = optim.SGD(model.parameters(), 0.1, momentum=0.9)
    sight, losses, gradients = Sight(model), [], {}
    for batch in batches:
        optimizer.zero_grad()
        with sight.hooks:
            losses.append(backend.step(model, batch, loss))
        gradients = backend.state.full_gradients(model)
        backend.update(model, optimizer)
    arrays = backend.state.full_parameters(model) | backend.state.full_state(model)
    arrays = {name: array.copy() for name, array in arrays.items()}
    gradients = {name: None if g is None else g.copy() for name, g in gradients.items()}
    backend.finalize(model)
    backend.close()
    return Trained(losses, arrays, gradients, (sight.outputs, sight.gradients))


def an_own_net_trains_like_serial(
    name: str, sizes: Sequence[int] = (7, 4), loss: str = "mean over samples", seed: int = 0
) -> None:
    """Losses, gradients, parameters and buffers on every rank, and what hooks see on all of them."""
    layout, batches = LAYOUTS[name], batches_of(sizes, seed)
    build = partial(net, momentum=0.3 if layout.moves else 0.0)
    serial = train(Serial(layout.micro), build, batches, LOSSES[loss])
    assert not layout.moves or np.ptp(serial.arrays["0.center"]) > 1e-3

    def work(comm: Communicator) -> Trained:
        return train(layout.strategy(comm), build, batches, LOSSES[loss], comm.rank)

    runs = run_ranks(layout.ranks, work)
    for rank, run in enumerate(runs):
        np.testing.assert_allclose(run.losses, serial.losses, rtol=BOUND, err_msg=f"the loss, rank {rank}")
        for expected, actual in ((serial.gradients, run.gradients), (serial.arrays, run.arrays)):
            for array, (_, relative) in distances(expected, actual).items():
                assert relative <= BOUND, f"{array} differs by {relative:.1e} on rank {rank}"
    times = layout.ranks if name == "model" else 2 if name == "data, pipe, model" else 1
    sums = np.sum([run.sums for run in runs], axis=0)
    np.testing.assert_allclose(sums, times * np.array(serial.sums), rtol=BOUND, err_msg="what hooks see")


class Tokens(nn.Module):
    """Acts on each token alone, with a constant buffer."""

    token_wise = True

    def __init__(self, rng: np.random.Generator):
        self.inner = nn.Linear(3, 3, rng=rng)
        self.register_buffer("scale", np.linspace(0.5, 1.5, 3))

    def forward(self, x: Any) -> Tensor:
        return ops.tanh(self.inner(x)) * vars(self)["scale"]


def tokens_train_like_serial(ranks: int, rows: int, length: int) -> None:
    """Under sequence parallelism hooks see a rank's tokens, and a loss of elements counts all ranks'."""
    rng = np.random.default_rng(0)
    batch = Batch(rng.normal(size=(rows, length, 3)), rng.normal(size=(rows, length, 2)))

    def run(backend: Strategy) -> Any:
        model = backend.place(
            nn.Sequential(Tokens(np.random.default_rng(1)), nn.Linear(3, 2, rng=2)).to(dtype=np.float64)
        )
        hooks = Hooks(model, forward={"0": lambda y: y * y}, backward={"0": lambda g: 2 * g})
        with hooks:
            loss = backend.step(model, batch, nn.MSELoss())
        return loss, backend.state.full_gradients(model)

    expected, gradients = run(Serial())
    for loss, actual in run_ranks(ranks, lambda comm: run(SequenceParallel(comm))):
        np.testing.assert_allclose(loss, expected, rtol=BOUND)
        assert max(relative for _, relative in distances(gradients, actual).values()) <= BOUND


def recomputed_layers_have_their_hooks(segments: int) -> None:
    whole, again = (
        train(Serial(), build, batches_of([6], 0), mean_over_samples).gradients
        for build in (partial(net, momentum=0.0), lambda rng: recomputed(net(rng, 0.0), segments))
    )
    for name, (_, relative) in distances(whole, again).items():
        assert relative <= BOUND, name


class Bent(nn.Module):
    def forward(self, x: Any) -> Tensor:
        return ops.tanh(x) + 0.5 * x


def hooks_are_layers_in_their_place() -> None:
    """A forward hook is a layer behind its layer, and a factor of a gradient is one of all before it."""
    (batch,), gradients = batches_of([6], 0), []
    for with_hooks in (True, False):
        model = net(np.random.default_rng(0), momentum=0.0)
        model.to(dtype=np.float64)
        if not with_hooks:
            model.layers.insert(3, Bent())
        with Tape() as tape:
            if with_hooks:
                factors = {"3": lambda g: 1.5 * g, "0": lambda g: 0.7 * g}
                with Hooks(model, forward={"2": Bent(), "4": lambda y: None}, backward=factors):
                    out = model(Tensor(batch.x))
            else:
                out = model(Tensor(batch.x))
            loss = mean_over_samples(out, batch.y)
        tape.backward(loss)
        gradients.append({name: p.grad for name, p in model.named_parameters().items()})
    for name, expected in gradients[1].items():
        layer = int(name[0])
        factor = 1.5 * 0.7 if layer == 0 else 1.5 if layer <= 4 else 1.0
        actual = gradients[0][name.replace(name[0], str(layer - (layer > 3)), 1)]
        np.testing.assert_allclose(actual, factor * expected, rtol=1e-12, atol=1e-15, err_msg=name)


def an_own_net_goes_on_in_another_layout(before: str, after: str, sizes: Sequence[int], k: int) -> None:
    first, other = (
        resume_laws.Layout(LAYOUTS[name].ranks, LAYOUTS[name].strategy) for name in (before, after)
    )
    resume_laws.goes_on_in_another_layout(
        first, other, net, OPTIMIZERS["adam"], batches_of(sizes, 0), k, loss_fn=mean_over_samples
    )
