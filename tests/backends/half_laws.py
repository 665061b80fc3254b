"""Laws of strategies that train float16 parameters: a step sends half of the bytes of float32, but for a few
figures.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from backends.comm import Communicator, run_ranks
from backends.comm.communicator import Wrapper
from backends.data_parallel.bucketed import Bucketed
from backends.data_parallel.data_parallel import DataParallel
from backends.data_parallel.naive import NaiveDataParallel
from backends.data_parallel.synchronous import SynchronousDataParallel
from backends.data_parallel.zero.naive import NaiveSharded
from backends.data_parallel.zero.sharded import Sharded
from backends.expert_parallel import ExpertParallel
from backends.expert_parallel.naive import NaiveExpertParallel
from backends.model_parallel.layers.class_parallel import ClassLinear
from backends.model_parallel.model_parallel import ModelParallel
from backends.pipeline import Pipeline
from backends.pipeline.layer_wise import LayerWise
from backends.pipeline.naive import NaivePipeline
from backends.sequence_parallel import SequenceParallel
from backends.stack import Stack
from minigrad import nn, optim
from minigrad.data import Batch
from minigrad.device import Array
from minigrad.strategy import Strategy
from tests.backends.model_parallel.transformer_laws import TOKEN_LOSS, Net
from tests.backends.sequence_parallel.sequence_laws import stack, with_experts

NET = Net(heads=4, size=2, hidden=8, tokens=8, symbols=12, p=0.0)


class Layout(NamedTuple):
    """So many ranks, and how the strategy of each and its net are built."""

    ranks: int
    strategy: Callable[[Communicator], Strategy]
    build: Callable[[np.random.Generator], Any] = NET.build


def untied(rng: np.random.Generator) -> Any:
    """The net with a table of its own at the end."""
    model = NET.build(rng)
    model.layers[-1] = nn.Linear(NET.width, NET.symbols, rng=rng)
    return model


def axes(**sizes: Any) -> Layout:
    ranks = int(
        np.prod([size for axis, size in sizes.items() if axis in ("data", "pipe", "sequence", "model")])
    )
    return Layout(ranks, lambda comm: stack(comm, NET, **sizes))


LAYOUTS = {
    "data": Layout(3, DataParallel),
    "data, naive": Layout(3, NaiveDataParallel),
    "buckets": Layout(2, lambda comm: Bucketed(comm, bucket_bytes=300, progress="blocking")),
    **{f"ZeRO {n}": Layout(2, lambda comm, n=n: Sharded(comm, stage=n, bucket_bytes=300)) for n in (1, 2, 3)},
    "ZeRO, naive": Layout(2, NaiveSharded),
    "pipe": Layout(2, lambda comm: Pipeline(comm, micro_batches=2)),
    "pipe, naive": Layout(2, lambda comm: NaivePipeline(comm, micro_batches=2), untied),
    "layer-wise": Layout(2, lambda comm: LayerWise(comm), untied),
    "model": Layout(2, lambda comm: ModelParallel(comm, NET.plan())),
    "model, symbols": Layout(2, lambda comm: ModelParallel(comm, NET.plan(vocabulary=True))),
    "model, tokens": Layout(2, lambda comm: ModelParallel(comm, NET.plan(), split_tokens=True)),
    "ring": Layout(2, SequenceParallel),
    "ring of 3": Layout(3, SequenceParallel),
    "all-to-all": Layout(2, lambda comm: SequenceParallel(comm, form="ulysses")),
    "experts": Layout(2, ExpertParallel, with_experts(NET)),
    "experts, naive": Layout(2, NaiveExpertParallel, with_experts(NET)),
    "data x pipe": axes(data=2, pipe=2),
    "data x sequence x model": axes(data=2, sequence=2, model=2),
}
"""Strategies by axis, and stacks of them."""


class Counted(Wrapper):
    """``comm`` with the bytes that this rank sends, by dtype; groups count in the same place."""

    def __init__(self, comm: Communicator, sent: Counter[str]):
        super().__init__(comm)
        self.sent = sent

    def send(self, x: Array, to: int, tag: int = 0) -> None:
        self.sent[x.dtype.name] += x.nbytes
        self.comm.send(x, to, tag)

    def start_send(self, x: Array, to: int, tag: int = 0) -> Callable[[], None]:
        self.sent[x.dtype.name] += x.nbytes
        return self.comm.start_send(x, to, tag)

    def split(self, color: int, key: int | None = None) -> Counted:
        return Counted(self.comm.split(color, key), self.sent)


def figures(backend: Strategy, model: nn.Module, batch: Batch) -> int:
    """The bytes of figures that a rank sends in float32 whatever the parameters have.

    Data, sequence and expert parallelism of p ranks send p - 1 times a loss, the share of the batch, a count
    for each rank and a flag for each trained parameter. A loss of classes on p ranks sends p - 1 times three
    numbers for each token.
    """
    nbytes = 0
    members = backend.members if isinstance(backend, Stack) else [backend]
    trained = [p for p in model.parameters() if p.requires_grad]
    tokens = batch.y.size
    for member in members:
        if isinstance(member, SynchronousDataParallel):
            own = member.experts.parameters if isinstance(member, ExpertParallel) else ()
            count = len([p for p in trained if p not in own])
            nbytes += 4 * (member.size - 1) * (2 + member.size + count)
        if isinstance(member, ModelParallel):
            split = any(isinstance(module, ClassLinear) for module in model.modules())
            nbytes += 4 * (member.size - 1) * 3 * tokens * split
        if isinstance(member, (DataParallel, SequenceParallel)) and not isinstance(member, ExpertParallel):
            tokens //= member.size  # of this rank
    return nbytes


def sends_half_the_bytes(layout: Layout, *, loss: Any = TOKEN_LOSS) -> None:
    """A step and an update in float16 send half of what they send in float32, but for ``figures``.

    On every rank, in bytes by dtype. Other dtypes are those of the float32 run: losses of pipelines and naive
    forms (float64), counts of tokens of experts (int64).
    """
    (batch,) = NET.batches(4)

    def sent(dtype: Any) -> list[tuple[Counter[str], int]]:
        def work(comm: Communicator) -> tuple[Counter[str], int]:
            counter: Counter[str] = Counter()
            backend = layout.strategy(Counted(comm, counter))
            model = backend.place(layout.build(np.random.default_rng(0)).to(dtype=dtype))
            optimizer = optim.SGD(model.parameters(), 0.1)
            counter.clear()
            backend.step(model, batch, loss)
            backend.update(model, optimizer)
            return Counter(counter), figures(backend, model, batch)

        return run_ranks(layout.ranks, work)

    for rank, ((half, expected), (single, _)) in enumerate(
        zip(sent("float16"), sent("float32"), strict=True)
    ):
        assert half["float32"] == expected, (
            f"rank {rank} sent {half['float32']} bytes of figures, not {expected}"
        )
        nbytes = half.pop("float16") * 2 + half.pop("float32", 0)
        assert nbytes == single.pop("float32"), (
            f"rank {rank} sent {half}, twice {nbytes}, in float32 {single}"
        )
        assert half == single, f"rank {rank} sent {half}, in float32 {single}"
