"""Laws of backends/sequence_parallel/sequence_parallel.py, split_tokens.py and parts_of_rows.py:
models whose tokens are shared train like serial ones, with positions, dropout and
documents; what mixes them is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from backends.comm import run_ranks
from backends.data_parallel import DataParallel
from backends.grid import Grid
from backends.laws import trains_like_serial
from backends.model_parallel.model_parallel import ModelParallel
from backends.pipeline import Pipeline
from backends.sequence_parallel import SequenceParallel
from backends.stack import Stack
from minigrad import nn, ops
from minigrad.data import Batch
from minigrad.forward_pass import ForwardPass
from minigrad.random_mask import RandomMask
from minigrad.recompute import RecomputedModule, recomputed
from minigrad.tape import Tape
from minigrad.tensor import Tensor
from minigrad.tokens import Tokens
from tests.backends.model_parallel.transformer_laws import TOKEN_LOSS, Net, adamw

Strategy = Callable[..., Any]


def documents_of(batch: Batch, seed: int) -> Tokens:
    """Documents of some tokens each in the rows of a batch, of which the last ones may be padding."""
    rng = np.random.default_rng(seed)
    starts = rng.random(batch.y.shape) < 0.3
    starts[:, 0] = True
    document = np.cumsum(starts, axis=1) - 1
    position = np.arange(starts.shape[1]) - np.maximum.accumulate(
        np.where(starts, np.arange(starts.shape[1]), 0), axis=1
    )
    padding = np.arange(starts.shape[1]) >= rng.integers(1, starts.shape[1] + 1, (len(starts), 1))
    return Tokens(position, np.where(padding, -1, document))


def batches_of(net: Net, sizes: Sequence[int], documents: bool) -> list[Batch]:
    """Batches of rows whose labels end in padding, perhaps with documents."""
    batches = net.batches(*sizes)
    if not documents:
        return batches
    return [Batch(batch.x, batch.y, tokens=documents_of(batch, i)) for i, batch in enumerate(batches)]


def trains(
    strategy: Strategy,
    ranks: int,
    net: Net,
    *,
    sizes: Sequence[int] = (7, 5, 1),
    documents: bool = False,
    loss: Any = TOKEN_LOSS,
    build: Callable[..., Any] | None = None,
    batches: Sequence[Batch] | None = None,
) -> None:
    """Every parameter and gradient on every rank is the serial run's, with a clipped AdamW."""
    rows = batches_of(net, sizes, documents) if batches is None else batches
    run_ranks(
        ranks,
        lambda comm: trains_like_serial(strategy, comm, build or net.build, loss, [*rows], optimizer=adamw),
    )


def stack(
    comm: Any,
    net: Net,
    *,
    data: int = 1,
    pipe: int = 1,
    sequence: int = 1,
    model: int = 1,
    split_tokens: bool = False,
    recompute: bool = False,
    **settings: Any,
) -> Stack:
    """Strategies on the axes with several ranks; ``settings`` are those of the sequence axis."""
    grid = Grid(comm, data=data, pipe=pipe, sequence=sequence, model=model)
    plan = net.plan(vocabulary=True)
    members: list[Any] = [DataParallel(grid.data)] if data > 1 else []
    members += [SequenceParallel(grid.sequence, **settings)] if sequence > 1 else []
    members += [Pipeline(grid.pipe, micro_batches=2, recompute=recompute)] if pipe > 1 else []
    members += [ModelParallel(grid.model, plan, split_tokens=split_tokens)] if model > 1 else []
    return Stack(*members)


def trains_in_a_stack(axes: dict[str, int], net: Net = Net(), *, documents: bool = False, **how: Any) -> None:  # noqa: B008
    ranks = int(np.prod([*axes.values()]))
    trains(lambda comm: stack(comm, net, **axes, **how), ranks, net, documents=documents)


def again(net: Net, kind: str) -> Callable[..., Any]:
    """How a net is built of which ``kind`` runs again in backward."""

    def build(rng: np.random.Generator) -> Any:
        model = net.build(rng)
        if kind == "segments":
            return recomputed(model, 2)
        for block in model.layers[1 : net.blocks + 1]:
            attention = vars(block)["attention"]
            attention.core = RecomputedModule(attention.core)
        return model

    return build


def with_experts(net: Net) -> Callable[..., Any]:
    """How a net is built whose last block has three experts, with places for some of its tokens."""

    def build(rng: np.random.Generator) -> Any:
        model = net.build(rng)
        experts = nn.Experts(net.width, 3, hidden=5, choices=2, capacity=0.7, penalty=0.3, rng=rng)
        model.layers[net.blocks] = nn.TransformerBlock(net.width, net.heads, feed_forward=experts, rng=rng)
        return model

    return build


class Packed(nn.Module):
    """A transformer whose symbols, places and documents are in x (B, S, 3)."""

    token_wise = True

    def __init__(self, net: Net, rng: np.random.Generator):
        self.net = net.build(rng)

    def forward(self, x: Any) -> Tensor:
        embedding: Any
        embedding, *blocks, norm, scores = self.net.layers
        symbols, places, documents = np.moveaxis(np.asarray(x), 2, 0)
        h = ops.embedding(embedding.weight, symbols) + ops.embedding(embedding.position, places)
        for block in blocks:
            h = block(h, documents=documents)
        return scores(norm(h))


def packed_batches(net: Net, sizes: Sequence[int]) -> list[Batch]:
    """Rows of documents, as ``Packed`` takes them."""
    batches = []
    for batch in batches_of(net, sizes, documents=True):
        assert batch.tokens is not None
        x: Any = [batch.x, *batch.tokens.arrays()]
        batches.append(Batch(np.stack(x, axis=2), batch.y))
    return batches


def holds_a_share(tokens_of: Callable[..., Any], net: Net, ranks: int, more: int) -> None:
    """A tape of a block holds on each rank its share of what one machine holds, and ``more`` numbers.

    Ranks have as many tokens, and as many heads.
    """

    def nbytes(tokens: Any, n: int) -> int:
        block = net.block(np.random.default_rng(0)).to(dtype=np.float64)
        with ForwardPass(0, range(2), tokens=tokens), Tape() as tape:
            block(Tensor(np.ones((2, n, net.width)), requires_grad=True) * 1.0)
        return tape.nbytes

    n = net.tokens // ranks
    expected = nbytes(None, net.tokens) / ranks + 8 * more
    assert run_ranks(ranks, lambda comm: nbytes(tokens_of(comm, net.tokens), n)) == [expected] * ranks


def draws_whole_masks(tokens_of: Callable[..., Any], ranks: int, length: int, order: str) -> None:
    """The ranks' masks of (B, n, 3) are the columns of the mask of the whole rows, of every sample."""

    def work(comm: Any) -> None:
        tokens = tokens_of(comm, length, order)
        whole = RandomMask(5, (1,), 0, 2, range(4, 7))
        own = tokens.columns[comm.rank]
        part = tokens.mask(whole, 3).keep((3, len(own), 3), 0.5)
        expected = whole.keep((3, length, 3), 0.5)
        for sample in range(3):
            for i, column in enumerate(own):
                assert part[sample, i].tolist() == expected[sample, column].tolist()

    run_ranks(ranks, work)


def refuses(
    strategy: Strategy, build: Callable[..., Any], words: str, batch: Batch, loss: Any = TOKEN_LOSS
) -> None:
    """Placing or training a model on 2 ranks raises ValueError with these ``words``."""

    def work(comm: Any) -> None:
        backend = strategy(comm)
        model = backend.place(build(np.random.default_rng(0)))
        backend.step(model, batch, loss)

    try:
        run_ranks(2, work)
    except ValueError as error:
        assert re.search(words, str(error)), error
    else:
        raise AssertionError(f"nobody says {words!r}")
