"""Nets and strategies of all kinds on which a proof can be made, each with the batch of one step."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
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
from backends.expert_parallel.naive import NaiveExpertParallel
from backends.first_difference import Comparison, first_difference
from backends.grid import Grid
from backends.laws import bound_for, differences_from_serial
from backends.model_parallel.model_parallel import ModelParallel
from backends.pipeline import LayerWise, Pipeline
from backends.pipeline.naive import NaivePipeline
from backends.sequence_parallel import SequenceParallel
from backends.stack import Stack
from minigrad import nn, ops
from minigrad.data import Batch
from minigrad.recompute import recomputed
from minigrad.serial import Serial
from tests import nets
from tests.backends import several_inputs_laws
from tests.backends.data_parallel.bucketed_laws import Branching
from tests.backends.expert_parallel import expert_laws
from tests.backends.model_parallel.transformer_laws import TOKEN_LOSS, Masked, Net
from tests.backends.pipeline import pipeline_laws
from tests.backends.sequence_parallel import sequence_laws
from tests.backends.stack_laws import images, mlp
from tests.minigrad import tokens_laws

Watch = Callable[[int], Any]
"""A function of a rank, which gives the profile function (``sys.setprofile``) of its thread."""


class Layout(NamedTuple):
    """A strategy on some ranks, and the net and the batch of one step."""

    ranks: int
    strategy: Callable[[Communicator], Any]
    build: Callable[[np.random.Generator], Any]
    batch: Batch
    loss: Any = ops.cross_entropy
    micro: int = 1

    def differs(self) -> bool:
        """Whether a proof says that the step is not the serial one."""

        def work(comm: Communicator) -> float:
            differences = differences_from_serial(
                self.strategy, comm, self.build, self.loss, [self.batch], serial=Serial(self.micro)
            )
            return max((d.relative for d in differences), default=0.0)

        return not run_ranks(self.ranks, work)[0] <= bound_for(np.float64)

    def locate(self, watch: Watch | None = None) -> Comparison:
        def work(comm: Communicator) -> Comparison:
            if watch is not None:
                sys.setprofile(watch(comm.rank))
            try:
                return first_difference(
                    self.strategy, comm, self.build, self.loss, self.batch, serial=Serial(self.micro)
                )
            finally:
                sys.setprofile(None)

        return run_ranks(self.ranks, work)[0]


def batch_of(n: int, *shape: int) -> Batch:
    rng = np.random.default_rng(n)
    return Batch(rng.normal(0.3, 1.5, (n, *shape)), rng.integers(0, 3, n))


def sequences(rng: np.random.Generator) -> nn.Module:
    layers = nn.Linear(5, 4, rng=rng), nn.Tanh(), nn.Linear(4, 3, rng=rng), nn.Flatten()
    return nn.Sequential(*layers, nn.Linear(6, 3, rng=rng))


def dropping(rng: np.random.Generator) -> nn.Sequential:
    layers = nn.Linear(5, 7, rng=rng), nn.Dropout(0.3, rng=np.random.default_rng(1)), nn.Linear(7, 6, rng=rng)
    return nn.Sequential(*layers, nn.Tanh(), nn.Linear(6, 3, rng=rng))


def rectified(rng: np.random.Generator) -> nn.Module:
    """Neighbours that compute together."""
    return nn.Sequential(nn.Linear(4, 5, rng=rng), nn.ReLU(), nn.Linear(5, 3, rng=rng))


def windowed(rng: np.random.Generator) -> nn.Module:
    """Windows of all kinds, padded, of stride 1 and 2, in groups."""
    last = nn.Conv2d(4, 3, 3, stride=2, padding=1, rng=rng)
    vars(last)["bias"].data -= 5  # so that a border of zeros would be the maximum
    return nn.Sequential(
        nn.Conv2d(2, 2, 3, padding=1, rng=rng), nn.BatchNorm(2), nn.Tanh(),
        nn.Conv2d(2, 4, 5, padding=1, groups=2, rng=rng), nn.AvgPool2d(3, stride=1, padding=1),
        last, nn.MaxPool2d(3, stride=1, padding=1), nn.Flatten(), nn.Linear(75, 3, rng=rng),
    )  # fmt: skip


def penalized(rng: np.random.Generator) -> nn.Module:
    layers = tokens_laws.Penalized(rng), nn.Tanh(), tokens_laws.Penalized(rng)
    return nn.Sequential(*layers, nn.Linear(3, 3, rng=rng))


class Residual(nn.Module):
    """A net of a user, whose forward reshapes, adds and uses a layer twice."""

    def __init__(self, rng: np.random.Generator):
        self.first, self.twice = nn.Linear(8, 6, rng=rng), nn.Linear(6, 6, rng=rng)
        self.blocks = [nn.Sequential(nn.Linear(6, 6, rng=rng), nn.Tanh()) for _ in range(2)]
        self.heads = {"out": nn.Linear(6, 3, rng=rng)}

    def forward(self, x: Any) -> Any:
        h = ops.tanh(self.first(x.reshape(-1, 8)))
        h = self.twice(ops.tanh(self.twice(h)))
        for block in self.blocks:
            h = h + block(h)
        return self.heads["out"](h)


class UserStrategy(NaiveDataParallel):
    """A strategy of a user."""


def stacked(comm: Communicator, *, data: int = 1, pipe: int = 1, model: int = 1, inner: Any = None) -> Stack:
    grid = Grid(comm, data=data, pipe=pipe, model=model)
    members: list[Any] = [DataParallel(grid.data)] if data > 1 else []
    members += [inner(grid.pipe)] if pipe > 1 else []
    members += [ModelParallel(grid.model, {"1": "column", "3": "row"})] if model > 1 else []
    return Stack(*members)


MLP, IMAGES, TOKENS = batch_of(5, 2, 2, 2), batch_of(5, 2, 4, 4), Net(heads=3, size=2, tokens=7)
REUSING, LINE = batch_of(7, 1, 2, 3), batch_of(10, 4)
LARGE = batch_of(3, 2, 12, 11)


def data(
    strategy: Any, ranks: int = 3, build: Any = nets.Reusing, batch: Batch = REUSING, micro: int = 1
) -> Layout:
    return Layout(ranks, strategy, build, batch, micro=micro)


def split(plan: dict[str, str], ranks: int = 3, build: Any = mlp, batch: Batch = MLP, **how: Any) -> Layout:
    return Layout(ranks, lambda comm: ModelParallel(comm, plan, **how), build, batch)


def pipe(ranks: int, micro: int = 4, build: Any = nets.mlp, batch: Batch = LINE, **how: Any) -> Layout:
    return Layout(ranks, lambda comm: Pipeline(comm, micro_batches=micro, **how), build, batch, micro=micro)


def text(ranks: int, strategy: Any, net: Net = TOKENS, build: Any = None, documents: bool = False) -> Layout:
    (batch,) = sequence_laws.batches_of(net, (5,), documents)
    return Layout(ranks, strategy, build or net.build, batch, TOKEN_LOSS)


def heads(ranks: int, net: Net = TOKENS, vocabulary: bool = False, **how: Any) -> Layout:
    return text(ranks, lambda comm: ModelParallel(comm, net.plan(vocabulary=vocabulary), **how), net)


def experts(ranks: int, strategy: Any, net: Any = expert_laws.Net()) -> Layout:  # noqa: B008
    return Layout(ranks, strategy, net.build, expert_laws.batches_of((5,))[0], expert_laws.LOSS)


def in_space(kind: str, ranks: int) -> Layout:
    return split(dict.fromkeys(map(str, range(8)), kind), ranks, windowed, LARGE)


small = {"bucket_bytes": 100, "first_bucket_bytes": 50, "progress": "blocking"}

LAYOUTS: Mapping[str, Layout] = {
    "naive data": data(NaiveDataParallel, 3, dropping, batch_of(7, 5)),
    "data": data(DataParallel),
    "data, few samples": data(DataParallel, 3, batch=batch_of(2, 1, 2, 3)),
    "data, micro-batches": data(partial(DataParallel, micro_batches=2), 2, nets.convolutional),
    "data, ReLU": data(partial(DataParallel, micro_batches=2), 2, rectified, LINE),
    "data, batch-norm": data(partial(DataParallel, batch_norm="synchronized"), 3, nets.normalised),
    "data, residual": data(DataParallel, 2, Residual, batch_of(5, 2, 2, 2)),
    "data, branching": data(DataParallel, 3, Branching),
    "a user's": data(UserStrategy, 2, Residual, batch_of(5, 2, 2, 2)),
    "data, recomputed": data(DataParallel, 2, lambda rng: recomputed(dropping(rng), 3), batch_of(7, 5)),
    "bucketed": data(partial(Bucketed, **small)),
    "bucketed, micro-batches": data(partial(Bucketed, micro_batches=2, **small), 2),
    "elastic": data(Elastic, 2),
    "proportional": data(ProportionalDataParallel, 2),
    "one node": data(SharedMemoryDataParallel, 2),
    "naive ZeRO": data(NaiveSharded, 2, dropping, batch_of(7, 5)),
    **{f"ZeRO {n}": data(partial(Sharded, stage=n, bucket_bytes=300), 3) for n in (1, 2, 3)},
    "ZeRO 3, several inputs": data(partial(Sharded, stage=3), 2, several_inputs_laws.net, batch_of(5, 4)),
    "several inputs, split": split(several_inputs_laws.PLAN, 2, several_inputs_laws.net, batch_of(5, 4)),
    "column, row": split({"1": "column", "3": "row"}),
    "classes": split({"1": "row", "3": "column", "5": "classes"}),
    "gathered": split({"1": "gathered", "5": "row"}),
    "gathered, sequences": split({"0": "column", "2": "gathered"}, 2, sequences, batch_of(5, 2, 5)),
    "column, row, sequences": split({"0": "column", "2": "row"}, 2, sequences, batch_of(5, 2, 5)),
    "row, dropout": split({"0": "column", "2": "row", "4": "column"}, 3, dropping, batch_of(5, 5)),
    "column, dropout": split({"0": "column", "4": "row"}, 2, dropping, batch_of(5, 5)),
    "filters, channels": split({"0": "filters", "3": "channels", "6": "row"}, 2, images, IMAGES),
    "gathered filters": split({"0": "gathered-filters", "3": "filters"}, 2, images, IMAGES),
    "grid of 2 x 2": split(dict.fromkeys("024", "grid 2x2"), 4, dropping, batch_of(5, 5)),
    "grid of 3 x 2": split({"0": "column", "2": "grid 3x2", "4": "row"}, 6, dropping, batch_of(5, 5)),
    "grid, sequences": split({"0": "grid 2x2", "2": "grid 2x2", "4": "row"}, 4, sequences, batch_of(4, 2, 5)),
    "rows": in_space("rows", 3),
    "tiles": in_space("tiles 2x2", 4),
    "residual, split": split({"first": "column", "blocks.0.0": "row"}, 2, Residual),
    "heads": heads(2),
    "heads, more ranks than heads": heads(4),
    "heads, vocabulary": heads(3, vocabulary=True),
    "heads, masks": text(
        2, lambda c: ModelParallel(c, dict.fromkeys(("attention", "blocks.0", "blocks.1"), "heads")),
        build=lambda rng: Masked(TOKENS, "heads", rng),
    ),
    "tokens": heads(2, split_tokens=True),
    "tokens, vocabulary": heads(2, vocabulary=True, split_tokens=True),
    "tokens, gathered again": heads(3, split_tokens=True, gather_again=True),
    "ring": text(3, SequenceParallel),
    "ring, contiguous": text(2, partial(SequenceParallel, order="contiguous")),
    "ring, documents": text(3, SequenceParallel, documents=True),
    "ring, documents in a net": text(
        2, SequenceParallel, build=lambda rng: sequence_laws.Packed(TOKENS, rng)
    )._replace(batch=sequence_laws.packed_batches(TOKENS, (5,))[0]),
    "ring, all labels": Layout(
        3, SequenceParallel, TOKENS.build, Batch((rows := TOKENS.batches(5)[0]).x, np.abs(rows.y)),
        nn.CrossEntropyLoss(class_axis=-1),
    ),
    "ulysses": text(3, partial(SequenceParallel, form="ulysses")),
    "ulysses, documents": text(2, partial(SequenceParallel, form="ulysses"), documents=True),
    "ring, recomputed": text(2, SequenceParallel, build=sequence_laws.again(TOKENS, "attention")),
    "ring, experts": text(2, SequenceParallel, build=sequence_laws.with_experts(TOKENS)),
    "data x ring x pipe": text(
        8, lambda c: sequence_laws.stack(c, TOKENS, data=2, sequence=2, pipe=2)
    )._replace(micro=2),
    "ring x tokens": text(
        4, lambda c: sequence_laws.stack(c, TOKENS, sequence=2, model=2, split_tokens=True)
    ),
    "experts": experts(2, ExpertParallel),
    "experts, more ranks than experts": experts(4, ExpertParallel),
    "experts, tied": experts(2, ExpertParallel, expert_laws.TiedNet()),
    "experts x pipe": experts(
        4,
        lambda c: Stack(
            ExpertParallel((grid := Grid(c, data=2, pipe=2)).data), Pipeline(grid.pipe, micro_batches=2)
        ),
    )._replace(micro=2),
    "bucketed x experts": experts(
        4,
        lambda c: Stack(
            Bucketed(c.split(c.rank % 2, c.rank // 2), **small),
            ExpertParallel(c.split(c.rank // 2, c.rank % 2)),
        ),
    ),
    "naive experts": experts(3, NaiveExpertParallel),
    "naive pipe": Layout(
        2, lambda c: NaivePipeline(c, micro_batches=4), nets.mlp, LINE, micro=4
    ),
    "gpipe": pipe(3, schedule="gpipe"),
    "1f1b": pipe(2, schedule="1f1b"),
    "1f1b, pairs": pipe(2, schedule="1f1b-pairs"),
    "interleaved": pipe(2, schedule="interleaved"),
    "zb-h1": pipe(3, schedule="zb-h1"),
    "zb-v": pipe(2, schedule="zb-v"),
    "chimera": pipe(2, schedule="chimera"),
    "dualpipe": pipe(2, schedule="dualpipe"),
    "pipe, tied": pipe(2, build=nets.tied),
    "pipe, frozen": pipe(3, build=nets.frozen(1)),
    "pipe, unlike micro-batches": pipe(2, 3),
    "pipe, recomputed": pipe(2, build=nets.dropping, recompute=True),
    "pipe, layers that pass on": pipe(
        3, 4, pipeline_laws.passing_on, bounds=(0, 2, 3, 7)
    ),
    "pipe, penalties": pipe(2, 2, penalized, batch_of(4, 3), bounds=(0, 2, 4)),
    "pipe, images": pipe(2, build=nets.images, batch=IMAGES, bounds=(0, 1, 7)),
    "layer-wise": Layout(3, LayerWise, nets.dropping, LINE),
    "data x pipe x model": Layout(
        8, partial(stacked, data=2, pipe=2, model=2, inner=partial(Pipeline, micro_batches=2)), mlp, MLP,
        micro=2,
    ),
    "data x layers x model": Layout(8, partial(stacked, data=2, pipe=2, model=2, inner=LayerWise), mlp, MLP),
    "data x model": Layout(4, partial(stacked, data=2, model=2), mlp, MLP),
    "bucketed x pipe": Layout(
        4,
        lambda c: Stack(
            Bucketed((grid := Grid(c, data=2, pipe=2)).data, **small), Pipeline(grid.pipe, micro_batches=2)
        ),
        nets.tied, LINE, micro=2,
    ),
}  # fmt: skip
