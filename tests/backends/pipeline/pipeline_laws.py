"""Laws of backends/pipeline/pipeline.py, engine.py, p2p.py and stages.py: what a pipeline must do, as laws
that take it, so that broken ones face the same as ours.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

from backends import partition
from backends.comm import Communicator, run_ranks
from backends.comm.communicator import Wrapper
from backends.comm.trace import Traced
from backends.data_parallel import DataParallel
from backends.data_parallel.bucketed import Bucketed
from backends.grid import Grid
from backends.laws import trains_like_serial
from backends.model_parallel.model_parallel import ModelParallel
from backends.pipeline import p2p
from backends.pipeline.pipeline import Pipeline
from backends.pipeline.schedule import Schedule
from backends.pipeline.schedules import SCHEDULES
from backends.pipeline.timetable import Backward, Forward
from backends.stack import Stack
from minigrad import nn, ops
from minigrad.data import Batch, shares
from minigrad.device import array_module
from minigrad.serial import Serial
from minigrad.strategy import Strategy
from minigrad.tape import Tape
from minigrad.work import Work, forward_backward_pass
from tests.nets import OPTIMIZERS, Build, batches_of, mlp, sample_of, tied

TAGS = range(p2p.FIRST_TAG, p2p.FIRST_TAG + p2p.TAGS)
TWO_WAY = ("chimera", "dualpipe")
V_SHAPED = ("zb-v", "dualpipe-v")
IN_ORDER = ("naive", "gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "dualpipe-v")
"""Every gradient is summed from micro-batch 0 to the last, as serially: the same bits."""


class Numbers(NamedTuple):
    """Ranks, micro-batches and chunks for which a schedule is defined."""

    ranks: int
    micros: int
    chunks: int

    def stages(self, name: str) -> int:
        return self.ranks if name in TWO_WAY else self.ranks * self.chunks


def defined(name: str, numbers: Numbers) -> bool:
    try:
        SCHEDULES[name].of(*numbers)
    except ValueError:
        return False
    return numbers.stages(name) <= 6


NUMBERS = {
    name: [
        numbers
        for p in range(1, 7)
        for m in range(1, 9)
        for v in range(1, 4)
        if defined(name, numbers := Numbers(p, m, v))
    ]
    for name in SCHEDULES
}


def any_bounds(layers: int, stages: int) -> list[tuple[int, ...]]:
    return [(0, *inner, layers) for inner in combinations(range(1, layers), stages - 1)]


# Laws


def trains(
    ranks: int,
    schedule: Schedule | str = "1f1b",
    micros: int = 4,
    *,
    build: Build = mlp,
    sizes: Sequence[int] = (7, 2),
    optimizer: str = "momentum",
    dtype: Any = np.float64,
    serial: Serial | None = None,
    bound: float | None = None,
    pipeline: Any = Pipeline,
    how: dict[str, Any] | None = None,
    left_out: int = 0,
    **settings: Any,
) -> None:
    """A pipeline leaves what ``Serial`` leaves, on every rank after every step."""
    batches = [Batch(b.x.astype(dtype), b.y) for b in batches_of(sizes, sample_of(build))]

    def work(comm):
        trains_like_serial(
            lambda comm: pipeline(comm, schedule, micro_batches=micros, **settings),
            comm,
            build,
            ops.cross_entropy,
            batches,
            dtype=dtype,
            optimizer=OPTIMIZERS[optimizer],
            serial=serial or Serial(micros),
            bound=bound,
            left_out=left_out,
        )

    run_ranks(ranks, work, **(how or {}))


def passing_on(rng: np.random.Generator) -> nn.Module:
    """Five of seven layers give what they get: identities, and a dropout in eval mode."""
    dropout = nn.Dropout(0.5, rng=rng).eval()
    layers = [nn.Linear(4, 5, rng=rng), nn.Identity(), dropout, nn.Linear(5, 3, rng=rng), nn.Identity()]
    return nn.Sequential(nn.Identity(), *layers, nn.Identity())


def stages_may_pass_on_what_they_get(
    bounds: tuple[int, ...], schedule: str = "1f1b", **settings: Any
) -> None:
    """The law, for bounds between the seven layers of ``passing_on``."""
    trains(len(bounds) - 1, schedule, build=passing_on, sizes=(8, 5), bounds=bounds, **settings)


class Together(Serial):
    """Each micro-batch takes a part of the share that each of ``ranks`` ranks would have of the batch."""

    def __init__(self, micro_batches: int, ranks: int):
        super().__init__(micro_batches)
        self.ranks = ranks

    def forward_backward(self, work, inner=forward_backward_pass):
        rows = np.arange(len(work.batch))
        own = [rows[share] for share in shares(len(rows), self.ranks)]
        cut = [[part[s] for s in shares(len(part), self.micro_batches)] for part in own]
        parts = [np.concatenate(pieces) for pieces in zip(*cut, strict=True)]
        micro_batches = [(work.batch[part], len(part) / len(rows)) for part in parts if len(part)]
        return sum(inner(work._replace(batch=b, loss_weight=w, on_grad=None)) for b, w in micro_batches)


def stack_trains(
    shape: tuple[int, int, int],
    schedule: str = "1f1b",
    micros: int = 4,
    plan: dict[str, str] | None = None,
    *,
    build: Build = mlp,
    sizes: Sequence[int] = (9, 2),
    optimizer: str = "momentum",
    data: Any = DataParallel,
    pipeline: Any = Pipeline,
    serial: Serial | None = None,
    **settings: Any,
) -> None:
    """Data by stages by neurons, on a grid of this shape, leave what ``Serial`` leaves."""
    ranks, pipe, model = shape

    def strategy(comm):
        grid = Grid(comm, data=ranks, pipe=pipe, model=model)
        inside = [ModelParallel(grid.model, plan or {})] if model > 1 else []
        middle = pipeline(grid.pipe, schedule, micro_batches=micros, **settings)
        return Stack(data(grid.data), middle, *inside)

    run_ranks(
        ranks * pipe * model,
        lambda comm: trains_like_serial(
            strategy,
            comm,
            build,
            ops.cross_entropy,
            batches_of(sizes, sample_of(build)),
            optimizer=OPTIMIZERS[optimizer],
            serial=serial,
        ),
    )


def joint_norms_over_three_axes(optimizer: str, data: Any = DataParallel) -> None:
    """Data 2 x pipe 2 x model 2; weights are split, replicated, and tied over both stages."""
    plan = {"0": "column", "7": "row"}
    stack_trains((2, 2, 2), "1f1b", 2, plan, build=tied, sizes=(5, 4), optimizer=optimizer, data=data)


def all_three_axes_train_like_serial(comm: Communicator, *, traced: bool) -> None:
    """Data 2 x pipe 2 x model 2 with bucketed gradients, to the last digits, traced or not."""
    comm = Traced(comm) if traced else comm
    grid = Grid(comm, data=2, pipe=2, model=2)

    def strategy(comm: Communicator) -> Strategy:
        data = Bucketed(grid.data, bucket_bytes=400, first_bucket_bytes=100, progress="thread")
        model = ModelParallel(grid.model, {"0": "column", "2": "row", "7": "classes"})
        return Stack(data, Pipeline(grid.pipe, micro_batches=3), model)

    batches = batches_of((13, 6), sample_of(mlp))
    trains_like_serial(strategy, comm, mlp, ops.cross_entropy, batches, bound=2e-15)


class Sent(NamedTuple):
    """What one rank sent another in a step: messages and their bytes."""

    messages: int
    bytes: int


def sends_what_crosses(
    numbers: Numbers,
    schedule: str,
    *,
    samples: int = 9,
    build: Build = mlp,
    widths: Sequence[int] = (6, 6, 5, 5, 5, 7, 7),  # behind each layer but the last
    bounds: Sequence[int] | None = None,
    trained: int = 0,
    dtype: Any = np.float64,
    pipeline: Any = Pipeline,
) -> None:
    """Over each boundary go as many activations as there are micro-batches, and gradients if they are asked.

    ``trained`` is the first layer that is. Stage s is on rank s % ranks, or in schedules that go both ways on
    rank s for even micro-batches and ranks - 1 - s for odd ones, or on rank s on the way down of a V and
    2 ranks - 1 - s on the way up.
    """
    (batch,) = batches_of([samples])
    batch = Batch(batch.x.astype(dtype), batch.y)
    stages = numbers.stages(schedule)
    cuts = bounds or any_bounds(len(widths) + 1, stages)[0]
    expected: Counter[tuple[int, int, str]] = Counter()
    for micro, share in enumerate(shares(samples, numbers.micros)):
        rows = share.stop - share.start
        for behind in range(1, stages):
            way = [behind - 1, behind]
            if schedule in TWO_WAY and micro % 2:
                way = [numbers.ranks - 1 - stage for stage in way]
            if schedule in V_SHAPED:
                way = [min(stage, 2 * numbers.ranks - 1 - stage) for stage in way]
            source, to = (stage % numbers.ranks for stage in way)
            if source == to or not rows:
                continue
            nbytes = rows * widths[cuts[behind] - 1] * np.dtype(dtype).itemsize
            expected += Counter({(source, to, "messages"): 1, (source, to, "bytes"): nbytes})
            if trained < cuts[behind]:
                expected += Counter({(to, source, "messages"): 1, (to, source, "bytes"): nbytes})

    def count(comm):
        traced = Traced(comm)
        backend = pipeline(traced, schedule, micro_batches=numbers.micros, chunks=numbers.chunks, bounds=cuts)
        model = backend.place(build(np.random.default_rng(0)).to(dtype=dtype))
        for _ in range(2):  # the first time no shapes are known
            before = traced.record.ledger.counts.copy()
            backend.forward_backward(Work(model, batch, ops.cross_entropy, 1.0))
            actual: Counter[tuple[int, int | None, str]] = Counter()
            for (operation, peer), sent in traced.record.ledger.counts.items():
                earlier = before.get((operation, peer), Sent(0, 0))
                if "send" in operation and sent.messages > earlier.messages:
                    actual[comm.rank, peer, "messages"] = sent.messages - earlier.messages
                    actual[comm.rank, peer, "bytes"] = sent.bytes - earlier.bytes
            assert actual == {key: n for key, n in expected.items() if key[0] == comm.rank}, (
                f"rank {comm.rank} sent {actual}, wanted {expected}"
            )

    run_ranks(numbers.ranks, count)


class Watching(Wrapper):
    """A communicator that keeps what came and went with the tags of a pipeline, and copies of it."""

    def __init__(self, comm):
        super().__init__(comm)
        self.received: list[tuple[np.ndarray, np.ndarray]] = []
        self.sent: list[np.ndarray] = []

    def start_recv(self, source, tag=0, expect=None):
        finish = self.comm.start_recv(source, tag, expect)

        def done():
            x = finish()
            if tag in TAGS:
                self.received.append((x, x.copy()))
            return x

        return done

    def start_send(self, x, to, tag=0):
        finish, copy = self.comm.start_send(x, to, tag), x.copy()
        if tag in TAGS:
            self.sent.append(x)

        def done():
            finish()
            assert np.array_equal(x, copy), "what was sent was written before the send was finished"

        return done


def watched(pipeline: Any = Pipeline, channels_last: bool = False) -> Any:
    """The pipeline, which asserts that what it received is never written, and spoils it after the step."""

    class Watched(pipeline):
        def __init__(self, comm, *arguments, **settings):
            super().__init__(Watching(comm), *arguments, **settings)

        def finish(self, model, loss):
            received = self.comm.received
            for x, copy in received:
                assert np.array_equal(x, copy), "what was received was written"
                if channels_last and x.ndim == 4:
                    assert x.transpose(0, 2, 3, 1).flags.c_contiguous, "the memory order was lost"
            for (x, _), (y, _) in combinations(received, 2):
                assert not np.shares_memory(x, y), "two that were received share memory"
            return super().finish(model, loss)

        def update(self, model, optimizer):
            super().update(model, optimizer)
            for x in (*(x for x, _ in self.comm.received), *self.comm.sent):
                if (array_module(x) is not np or x.flags.writeable) and x.flags.owndata:
                    x[...] = np.nan
            self.comm.received.clear()
            self.comm.sent.clear()

    return Watched


class Counting:
    """How many tapes each thread rank holds at most; its ``Tape`` is to stand in the engine's place."""

    def __init__(self):
        self.in_flight: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        counting = self

        class Counted(Tape):
            __slots__ = ("rank",)

            def __init__(self):
                super().__init__()
                self.rank = threading.current_thread().name
                counting.in_flight[self.rank] += 1
                counting.most[self.rank] = max(counting.most[self.rank], counting.in_flight[self.rank])

            def __del__(self):
                counting.in_flight[self.rank] -= 1

        self.Tape = Counted

    def by_rank(self, ranks: int) -> list[int]:
        return [self.most[f"rank {rank}"] for rank in range(ranks)]


def backwards_reversed(*on: int) -> Schedule:
    """GPipe in which some ranks take micro-batches back from the last to the first; none named: all."""

    def lifo(rank, ranks, micros, chunks):
        yield from map(Forward, range(micros))
        back = range(micros)
        yield from map(Backward, reversed(back) if rank in on or not on else back)

    return Schedule(lifo)


class Reversed(Serial):
    """Takes the last micro-batch first."""

    def forward_backward(self, work, inner=forward_backward_pass):
        parts = work._replace(on_grad=None).split(self.micro_batches).values()
        losses = [inner(part) for part in reversed(parts)]
        return sum(reversed(losses))


def pipelines_of_a_grid_are_cut_alike() -> None:
    """By the time of the layers, as one rank measures it once; a second measurement would say otherwise."""
    model = mlp(np.random.default_rng(0))
    last = len(model.layers) - 1
    costs = iter([[1.0] * last + [9.0], [9.0] + [1.0] * last])

    def work(comm: Communicator) -> tuple[int, ...]:
        grid = Grid(comm, data=2, pipe=2)
        pipeline = Pipeline(grid.pipe, sample=sample_of(mlp), agree_on=grid.comm)
        Stack(DataParallel(grid.data), pipeline).place(mlp(np.random.default_rng(0)))
        return pipeline.bounds

    with patch.object(partition, "costs_by_time", lambda model, batch: next(costs)):
        cuts = run_ranks(4, work)
    assert set(cuts) == {(0, last, last + 1)}, f"the ranks' bounds are {cuts}"
