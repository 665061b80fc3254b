"""Laws of backends/model_parallel/activation_memory.py: a transformer that is split by heads, tokens and
symbols holds what the table says; it trains like the serial one, and sends what closed forms say.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from backends.comm import run_ranks
from backends.comm.collectives import ring_allreduce
from backends.comm.trace import Traced
from backends.data_parallel import DataParallel
from backends.grid import Grid
from backends.laws import trains_like_serial
from backends.model_parallel.activation_memory import Block, Part, activation_memory
from backends.model_parallel.layers.sharding import ShardedTensor, even_shard
from backends.model_parallel.model_parallel import ModelParallel
from backends.pipeline import Pipeline
from backends.stack import Stack
from minigrad import nn, optim
from minigrad.data import Batch, shares
from minigrad.nn import CrossEntropyLoss
from minigrad.recompute import RecomputedModule, recomputed
from minigrad.tape import Tape
from minigrad.tensor import Tensor
from minigrad.testing import on_device

FORMS: dict[str, dict[str, Any]] = {
    "heads": {},
    "tokens": {"split_tokens": True},
    "gathered again": {"split_tokens": True, "gather_again": True},
}
TOKEN_LOSS = CrossEntropyLoss(ignore_index=-1, class_axis=-1)


class Net(NamedTuple):
    """A small transformer: the sizes, and what its layers do."""

    heads: int = 2
    size: int = 4  # of a head
    hidden: int = 7
    tokens: int = 6
    symbols: int = 9
    blocks: int = 2
    p: float = 0.2

    @property
    def width(self) -> int:
        return self.heads * self.size

    def block(self, rng: np.random.Generator) -> nn.TransformerBlock:
        return nn.TransformerBlock(self.width, self.heads, hidden=self.hidden, p=self.p, rng=rng)

    def build(self, rng: np.random.Generator) -> nn.Sequential:
        embedding = nn.TokenEmbedding(self.symbols, self.width, self.tokens, rng=rng)
        embedding.weight.data *= 10  # so that no gradient is nearly 0
        blocks = [self.block(rng) for _ in range(self.blocks)]
        return nn.Sequential(embedding, *blocks, nn.LayerNorm(self.width), nn.Unembedding(embedding))

    def plan(self, *, vocabulary: bool = False) -> dict[str, str]:
        """Blocks by heads, and with ``vocabulary`` the table by its rows."""
        plan = {str(i + 1): "heads" for i in range(self.blocks)}
        return plan | ({"0": "vocabulary", str(self.blocks + 2): "vocabulary"} if vocabulary else {})

    def inner_plan(self) -> dict[str, str]:
        """The blocks' layers by their names."""
        kinds = {"attention": "heads", "feed_forward.0": "column", "feed_forward.2": "row"}
        return {f"{i + 1}.{name}": kind for i in range(self.blocks) for name, kind in kinds.items()}

    def batches(self, *sizes: int) -> list[Batch]:
        """Rows of symbols; the labels of a row end in padding, -1, after at least one that counts."""
        rng = np.random.default_rng([self.symbols, self.tokens])
        batches = []
        for n in sizes:
            x, y = (rng.integers(0, self.symbols, (n, self.tokens)) for _ in range(2))
            y[np.arange(self.tokens) >= rng.integers(1, self.tokens + 1, (n, 1))] = -1
            batches.append(Batch(x, y))
        return batches


def adamw(parameters: list[Any]) -> optim.Optimizer:
    return optim.AdamW(parameters, 0.01).clipped(0.5)


def trains(
    net: Net,
    ranks: int,
    strategy: Callable[..., Any],
    *,
    sizes: tuple[int, ...] = (7, 5, 1),
    loss: Any = TOKEN_LOSS,
    build: Callable[..., Any] | None = None,
) -> None:
    """Assert that every parameter, on every rank, trains as serially."""
    run_ranks(
        ranks,
        lambda comm: trains_like_serial(
            strategy, comm, build or net.build, loss, net.batches(*sizes), optimizer=adamw
        ),
    )


def splits_heads(
    form: str,
    net: Net,
    ranks: int,
    *,
    vocabulary: bool = False,
    micro: int = 1,
    sizes: tuple[int, ...] = (7, 5, 1),
) -> None:
    plan = net.plan(vocabulary=vocabulary)
    trains(net, ranks, lambda c: ModelParallel(c, plan, micro_batches=micro, **FORMS[form]), sizes=sizes)


class Masked(nn.Module):
    """An attention and blocks inside of a module, which gives them ``masks`` that it makes of its symbols."""

    def __init__(self, net: Net, masks: str, rng: np.random.Generator):
        self.masks, self.heads = masks, net.heads
        self.attention = nn.Attention(net.width, net.heads, rng=rng)
        self.blocks = [net.block(rng) for _ in range(net.blocks)]
        self.last = nn.Linear(net.width, net.symbols, rng=rng)
        self.table = nn.TokenEmbedding(net.symbols, net.width, net.tokens, rng=rng)

    def forward(self, x: Any) -> Tensor:
        (n, size), keys = x.shape, np.arange(x.shape[1])
        documents = keys[None] // 2 + np.zeros((n, 1), int)
        heads = (keys + np.arange(self.heads)[:, None, None]) % 3 > 0  # (heads, 1, S)
        kinds: dict[str, dict[str, Any]] = {
            "documents": {"documents": documents},
            "heads": {"mask": heads},
            "samples and heads": {"mask": np.broadcast_to(heads, (n, self.heads, size, size))},
            "one for all": {"mask": heads[:1]},
        }
        masks = {name: on_device(mask) for name, mask in kinds[self.masks].items()}
        x = self.attention(self.table(x), **masks)
        for block in self.blocks:
            x = block(x, **masks)
        return self.last(x)


def sees_masks(form: str, net: Net, ranks: int, masks: str) -> None:
    plan = dict.fromkeys(("attention", *(f"blocks.{i}" for i in range(net.blocks))), "heads")
    strategy = lambda comm: ModelParallel(comm, plan, **FORMS[form])  # noqa: E731
    trains(net, ranks, strategy, build=lambda rng: Masked(net, masks, rng))


def refuses(
    form: str,
    build: Callable[..., Any],
    plan: dict[str, str],
    x: np.ndarray,
    *,
    words: str = "",
    **masks: Any,
) -> None:
    """Assert that ranks refuse an input in the words of one machine, or in these ``words``."""
    with pytest.raises(ValueError, match=words or None) as serial:
        build(np.random.default_rng(0))(x, **masks)
    words = re.escape(words or str(serial.value).split("): ")[-1])

    def work(comm):
        ModelParallel(comm, plan, **FORMS[form]).place(build(np.random.default_rng(0)))(x, **masks)

    with pytest.raises(ValueError, match=words):
        run_ranks(2, work)


class Turned(nn.Attention):
    def forward(self, x: Any, **masks: Any) -> Tensor:
        return super().forward(x * -2.0, **masks)


class Doubled(nn.Linear):
    def forward(self, x: Any) -> Tensor:
        return super().forward(x * 2.0)


class LessMean(nn.LayerNorm):
    """A norm of all tokens together."""

    def forward(self, x: Any) -> Tensor:
        return super().forward(x - 0.5 * x.mean(axis=1, keepdims=True))


class Shifted(nn.Dropout):
    def forward(self, x: Any) -> Tensor:
        return super().forward(x) + 1.0


CHANGES: dict[str, Callable[[nn.Sequential, np.random.Generator], object]] = {
    "attention": lambda net, rng: vars(net[1]).update(attention=Turned(8, 2, rng=rng)),
    "qkv": lambda net, rng: vars(vars(net[1])["attention"]).update(qkv=Doubled(8, 24, rng=rng)),
    "a norm of all tokens": lambda net, rng: vars(net[1]).update(norm1=LessMean(8)),
    "a norm of two axes": lambda net, rng: vars(net[1]).update(norm2=nn.LayerNorm((6, 8))),
    "a last norm of two axes": lambda net, rng: net.replace("3", nn.LayerNorm((6, 8))),
    "a last norm of all tokens": lambda net, rng: net.replace("3", LessMean(8)),
    "no dropout": lambda net, rng: vars(net[1]).update(dropout1=nn.Identity()),
    "a dropout of its own": lambda net, rng: vars(net[1]).update(dropout2=Shifted(0.2, rng=rng)),
    "several dropouts": lambda net, rng: vars(net[1]).update(
        dropout1=nn.Sequential(nn.Dropout(0.2, rng=rng))
    ),
    "a last dropout of its own": lambda net, rng: net.replace("3", Shifted(0.2, rng=rng)),
    "a linear layer": lambda net, rng: vars(net[1]).update(feed_forward=Doubled(8, 8, rng=rng)),
    "a shared block": lambda net, rng: net.replace("2", net[1]),
}
"""Changes of a ``Net()`` in its first block, or around the blocks."""


def changed_block(form: str, change: str, plan: dict[str, str] | None) -> None:
    """Assert that a changed net trains like serial, unless a ``plan`` that does not fit it is refused."""
    net = Net()

    def build(rng: np.random.Generator) -> nn.Sequential:
        model = net.build(rng)
        CHANGES[change](model, rng)
        return model

    try:
        trains(net, 2, lambda c: ModelParallel(c, plan, **FORMS[form]), sizes=(4, 3), build=build)
    except ValueError as error:
        words = ("cannot be split by", "whose forward it does not have", "shares a parameter")
        if plan is None or not any(word in str(error) for word in words):
            raise


def stacks(
    form: str,
    net: Net,
    *,
    recompute: bool = False,
    vocabulary: bool = True,
    segments: Any = None,
    schedule: str = "1f1b",
) -> None:
    """Data 2 x pipe 2 x model 2; ``segments`` of the model itself are recomputed."""

    def strategy(comm):
        grid = Grid(comm, data=2, pipe=2, model=2)
        return Stack(
            DataParallel(grid.data),
            Pipeline(grid.pipe, schedule, micro_batches=4, recompute=recompute),
            ModelParallel(grid.model, net.plan(vocabulary=vocabulary), **FORMS[form]),
        )

    build = net.build if segments is None else lambda rng: recomputed(net.build(rng), segments)
    trains(net, 8, strategy, build=build)


def placed_block(
    form: str, net: Net, comm: Any, *, recompute: str = "", **settings: Any
) -> tuple[Any, ModelParallel]:
    """A block alone, in float64 and training mode, and its strategy."""
    block = net.block(np.random.default_rng(0))
    if recompute == "core":
        block.attention.core = RecomputedModule(block.attention.core)
    model = nn.Sequential(block)
    model = (recomputed(model, 1) if recompute == "block" else model).to(dtype=np.float64)
    backend = ModelParallel(comm, {"0": "heads"}, **FORMS[form], **settings)
    return backend.place(model), backend


def own_input(form: str, net: Net, backend: ModelParallel, samples: int) -> ShardedTensor:
    """The input that this rank has between blocks; it needs a gradient."""
    x = np.random.default_rng(1).normal(size=(samples, net.tokens, net.width))
    if form == "heads":
        return ShardedTensor(Tensor(x, requires_grad=True))
    tokens = even_shard(1, backend.comm, net.tokens)
    return ShardedTensor(Tensor(tokens.local_part(x).copy(), requires_grad=True), (tokens,))


def sends(form: str, net: Net, ranks: int, samples: int) -> None:
    """Assert messages of each rank, and bytes of all: 8 (p - 1) B S h numbers; gathered again 2 (p - 1) more.

    The sum of the other gradients is one all-reduce of 6 h numbers, if tokens are split.
    """

    def work(comm):
        traced = Traced(comm)
        model, backend = placed_block(form, net, traced, allreduce=ring_allreduce)
        a, ledger = own_input(form, net, backend, samples), traced.record.ledger
        totals = [ledger.sent()]
        with Tape() as tape:
            y = model.layers[0].sharded_forward(a).local
        totals.append(ledger.sent())
        tape.backward(y, np.ones(y.shape))
        totals.append(ledger.sent())
        backend.finish(model, 0.0)
        totals.append(ledger.sent())
        return np.diff(np.array([tuple(total) for total in totals]), axis=0)

    counts = np.array(run_ranks(ranks, work))  # rank, pass, (messages, bytes)
    hops, n, more = ranks - 1, samples * net.tokens * net.width, 2 if form == "gathered again" else 0
    last = 0 if form == "heads" else 1
    assert counts[:, :, 0].tolist() == [[4 * hops, (4 + more) * hops, 2 * hops * last]] * ranks, counts
    numbers = (counts[:, :, 1].sum(axis=0) / 8).tolist()
    assert numbers == [4 * hops * n, (4 + more) * hops * n, 2 * hops * 6 * net.width * last], numbers


def holds(
    form: str, net: Net, ranks: int, samples: int, recompute: str = "", *, tiles: bool, statistics: int
) -> None:
    """Assert ``Tape.nbytes`` of a block on every rank: the table, to the byte."""

    def work(comm):
        model, backend = placed_block(form, net, comm, recompute=recompute)
        a = own_input(form, net, backend, samples)
        with Tape() as tape:
            x = a.local * 1.0  # no leaf: somebody must hold it
            model.sharded_forward(ShardedTensor(x, a.shards))
        return tape.nbytes

    unit = 8 * samples * net.tokens * net.width
    sizes = Block(net.tokens, net.width, net.heads, net.hidden)
    parts = [
        [share.stop - share.start for share in shares(n, ranks)] for n in (net.heads, net.hidden, net.tokens)
    ]
    for rank, nbytes in enumerate(run_ranks(ranks, work)):
        part = Part(*(sizes_of[rank] for sizes_of in parts))
        if form == "heads":
            part = part._replace(tokens=net.tokens)
        attention = "recomputed" if recompute == "core" else "tiles" if tiles else "slide"
        settings = {"attention": attention, "statistics": statistics, "dropout": net.p > 0}
        formula = activation_memory(sizes, part, gather_again=form == "gathered again", **settings)
        formula = unit * (part.tokens / net.tokens if recompute == "block" else formula)
        assert abs(nbytes - formula) < 1e-6 * unit, (rank, nbytes / unit, formula / unit)


def keeps_inputs(form: str, net: Net, ranks: int) -> None:
    """Assert that of a recomputed segment a tape holds this rank's part of the input, and nothing else."""

    def work(comm):
        model = recomputed(nn.Sequential(net.block(np.random.default_rng(0))), 1).to(dtype=np.float64)
        backend = ModelParallel(comm, {"0": "heads"}, **FORMS[form])
        placed: Any = backend.place(model)
        a = own_input(form, net, backend, 3)
        with Tape() as tape:
            y = placed.sharded_forward(ShardedTensor(a.local * 1.0, a.shards))
        assert [(s.axis, s.bounds) for s in y.shards] == [(s.axis, s.bounds) for s in a.shards]
        return tape.nbytes / (8 * a.local.size)

    inputs = run_ranks(ranks, work)
    assert inputs == [1] * ranks, f"the tape holds {inputs} inputs"
