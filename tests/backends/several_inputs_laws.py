"""Laws of minigrad/module.py: layers of several inputs and keywords train like serial, split and wrapped."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from backends.comm import run_ranks
from backends.comm.communicator import Communicator
from backends.data_parallel import DataParallel
from backends.data_parallel.bucketed import Bucketed
from backends.data_parallel.zero.sharded import Sharded
from backends.grid import Grid
from backends.laws import trains_like_serial
from backends.model_parallel.model_parallel import ModelParallel
from backends.pipeline import LayerWise, Pipeline
from backends.stack import Stack
from minigrad import Parameter, Tensor, nn, ops
from minigrad.recompute import recomputed
from minigrad.strategy import Strategy
from minigrad.testing import on_device
from tests.nets import batches_of, grouped

TOKENS, WIDTH = 3, 2
FEATURES = TOKENS * WIDTH


class Gate(nn.Module):
    """Two inputs and a keyword; a parameter of its own, and a layer."""

    def __init__(self, rng: np.random.Generator):
        self.inner = nn.Linear(FEATURES, FEATURES, rng=rng)
        self.shift = Parameter(rng.normal(size=FEATURES))

    def forward(self, x: Any, y: Any, *, scale: float = 1.0) -> Tensor:
        return x + scale * ops.sigmoid(self.inner(y) + self.shift) * x


class Attention(nn.Module):
    """Three inputs of (B, TOKENS WIDTH), and a mask of the pairs of tokens."""

    def __init__(self, rng: np.random.Generator):
        self.q, self.k, self.v = (nn.Linear(FEATURES, FEATURES, bias=i == 2, rng=rng) for i in range(3))
        self.dropout = nn.Dropout(0.3, rng=rng)

    def forward(self, q: Any, k: Any, v: Any, mask: Any = None) -> Tensor:
        q, k, v = (
            ops.reshape(layer(x), shape=(-1, TOKENS, WIDTH))
            for layer, x in ((self.q, q), (self.k, k), (self.v, v))
        )
        scores = q @ ops.transpose(k, axes=(0, 2, 1))
        if mask is not None:
            scores = ops.where(mask, scores, -1e9)
        return self.dropout(ops.reshape(ops.softmax(scores) @ v, shape=(-1, FEATURES)))


class Block(nn.Module):
    """Calls layers of several inputs that are attributes, in a ModuleList, and in a Sequential."""

    def __init__(self, rng: np.random.Generator):
        self.attention = Attention(rng)
        self.gates = nn.ModuleList(Gate(rng) for _ in range(2))
        self.steps = nn.Sequential(Gate(rng), Gate(rng), nn.Identity())

    def forward(self, x: Any) -> Tensor:
        h = self.attention(x, k=0.5 * x, v=x, mask=on_device(np.tri(TOKENS, dtype=bool)))
        for i, gate in enumerate(self.gates):
            h = gate(h, x, scale=0.5 + i)
        for gate in self.steps[:2]:
            h = gate(x, h, scale=0.25)
        return self.steps[2](h)


def net(rng: np.random.Generator) -> nn.Sequential:
    blocks = [Block(rng), nn.Identity(), Block(rng)]
    return nn.Sequential(nn.Linear(4, FEATURES, rng=rng), *blocks, nn.Linear(FEATURES, 3, rng=rng))


PLAN = {
    "0": "column",
    "1.attention.q": "column",
    "1.attention.v": "row",
    "1.gates.1.inner": "gathered",
    "1.steps.0.inner": "column",
    "3.steps.1.inner": "row",
    "4": "row",
}


def by_all_axes(comm: Communicator) -> Strategy:
    grid = Grid(comm, data=1, pipe=2, model=2)
    return Stack(
        DataParallel(grid.data),
        Pipeline(grid.pipe, bounds=(0, 2, 5), micro_batches=2),
        ModelParallel(grid.model, PLAN),
    )


STRATEGIES: dict[str, tuple[int, Callable[[Communicator], Strategy]]] = {
    "data": (3, DataParallel),
    "bucketed": (2, partial(Bucketed, bucket_bytes=200)),
    **{f"zero {n}": (2, partial(Sharded, stage=n, overlap=n == 3, bucket_bytes=200)) for n in (1, 2, 3)},
    "model": (2, partial(ModelParallel, plan=PLAN)),
    "layers": (2, LayerWise),
    "pipe": (2, partial(Pipeline, bounds=(0, 2, 5), micro_batches=2)),
    "pipe, model": (4, by_all_axes),
}


def a_layer_gets_all_inputs() -> None:
    gate = Gate(np.random.default_rng(0)).to(dtype=np.float64)
    x, y = np.random.default_rng(1).normal(size=(2, 4, FEATURES))
    state = gate.state_dict()
    z = y @ state["inner.weight"].T + state["inner.bias"] + state["shift"]
    np.testing.assert_allclose(gate(x, y, scale=0.3).data, x + 0.3 * x / (1 + np.exp(-z)), rtol=1e-12)


def activations_stay_split_through_the_identity() -> None:
    def work(comm: Communicator) -> list[Any]:
        rng = np.random.default_rng(0)
        model = nn.Sequential(nn.Linear(4, 6, rng=rng), nn.Identity(), nn.Linear(6, 3, rng=rng))
        placed: Any = ModelParallel(comm, {"0": "column", "2": "row"}).place(model)
        return [layer.out_sharding for layer in placed]

    for column, identity, row in run_ranks(2, work):
        assert identity == column, "the identity gathers"
        assert row is None


def trains(name: str, sizes: tuple[int, ...] = (4, 5), segments: int | None = None) -> None:
    """The law; with ``segments`` the net runs each of so many again in backward."""
    ranks, strategy = STRATEGIES[name]

    def build(rng: np.random.Generator) -> nn.Module:
        return net(rng) if segments is None else recomputed(net(rng), segments)

    def work(comm: Communicator) -> None:
        settings = {"optimizer": grouped, "oracle": net}
        trains_like_serial(strategy, comm, build, ops.cross_entropy, batches_of(sizes), **settings)

    run_ranks(ranks, work)
