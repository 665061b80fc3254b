"""Laws of backends/pipeline/pipeline.py, stages.py and layer_wise.py: what a beginner gets wrong with a
pipeline is told, and a rank that fails leaves nobody waiting.
"""

import re
from typing import Any

import numpy as np
import pytest

from backends.comm import run_ranks
from backends.pipeline.layer_wise import LayerWise
from backends.pipeline.pipeline import Pipeline
from backends.pipeline.schedule import Schedule
from backends.pipeline.schedules import SCHEDULES
from backends.pipeline.timetable import Backward, Forward
from minigrad import nn, ops
from minigrad.op import op
from minigrad.tape import Tape
from tests.backends.pipeline.pipeline_laws import trains
from tests.nets import batches_of, dropping, mlp


class NotASequential(nn.Module):
    def __init__(self, rng):
        self.layer = nn.Linear(4, 3, rng=rng)


class Twice(nn.Sequential):
    def forward(self, x) -> Any:
        return super().forward(x) * 2.0


class Two(nn.Module):
    def forward(self, x) -> Any:
        return x, x


class First(nn.Module):
    def forward(self, x):
        return x[0]


def pairs(rng):
    return nn.Sequential(nn.Linear(4, 6, rng=rng), Two(), First(), nn.Linear(6, 3, rng=rng))


class Detached(nn.Module):
    def forward(self, x):
        return x.detach()


def detached(rng):
    return nn.Sequential(nn.Linear(4, 4, rng=rng), Detached(), nn.Linear(4, 3, rng=rng))


def backward_first(rank, ranks, micros, chunks):
    for micro in range(micros):
        yield Backward(micro)
        yield Forward(micro)


def without_the_last(rank, ranks, micros, chunks):
    yield from map(Forward, range(micros - 1))
    yield from map(Backward, range(micros - 1))


@pytest.mark.parametrize(
    ("ranks", "settings", "message"),
    [
        (2, {"schedule": "1b1f"}, "unknown schedule '1b1f'; choose one of naive, gpipe, 1f1b, interleaved"),
        (3, {"schedule": "chimera"}, "chimera: it needs an even number of ranks, got 3; take 2 or 4"),
        (4, {"schedule": "dualpipe", "micros": 4}, "2 micro-batches .* of the 4 ranks, got 4; take 8"),
        (3, {"schedule": "interleaved", "micros": 4}, "in multiples of the 3 ranks, got 4; take 3 or 6"),
        (2, {"chunks": 2}, "1f1b: it has 1 chunk on each rank, not 2; interleaved has more"),
        (2, {"micros": 0}, "micro_batches must be at least 1, got 0"),
        (9, {}, r"9 stages cannot .* 8 layers; take at most 8"),
        (3, {"schedule": "interleaved", "micros": 3, "chunks": 3}, r"9 stages cannot each have"),
        (
            2,
            {"bounds": (0, 8)},
            r"bounds of 2 stages are 3 numbers that rise from 0 to the 8 layers, got \(0,",
        ),
        (2, {"bounds": (0, 3, 9)}, "rise from 0 to the 8 layers"),
        (2, {"bounds": (0, 0, 8)}, "rise from 0 to the 8 layers"),
        (2, {"bounds": (1, 3, 8)}, "rise from 0 to the 8 layers"),
        (2, {"bounds": ()}, "rise from 0 to the 8 layers"),
        (2, {"bounds": "layers"}, 'bounds are "bytes", "time" or numbers, got \'layers\''),
        (2, {"bounds": "time"}, "bounds by time need the shape of a sample"),
        (2, {"build": NotASequential}, "only a Sequential .* not NotASequential.*make it a Sequential"),
        (2, {"build": lambda rng: Twice(nn.Tanh(), NotASequential(rng))}, "only a Sequential .* not Twice"),
        (2, {"build": pairs, "bounds": (0, 2, 4)}, "stage 0 gives tuple, and only one tensor can go to the"),
        (2, {"build": detached, "bounds": (0, 1, 3)}, "no gradient goes back through stage 1.*freeze the"),
        (2, {"build": detached, "bounds": (0, 2, 3)}, "no gradient goes back through stage 0.*freeze the"),
        (
            2,
            {"schedule": "chimera", "build": dropping},
            "1.running_mean changes with every micro-batch, and would be on ranks 0, 1",
        ),
        (2, {"schedule": Schedule(backward_first)}, "backward-first .*Backward.*before Forward"),
        (2, {"schedule": Schedule(without_the_last)}, "without-the-last .*Forward.*3.* is missing"),
    ],
)
def test_what_cannot_be_is_refused(ranks, settings, message):
    with pytest.raises(ValueError, match=re.compile(message, re.DOTALL)):
        trains(ranks, **settings)


def test_running_statistics_are_refused_where_ranks_would_each_have_their_own():
    def build(rng):
        return nn.Sequential(nn.Linear(4, 6, rng=rng), nn.BatchNorm(6), nn.Tanh(), nn.Linear(6, 3, rng=rng))

    with pytest.raises(ValueError, match=r"1.running_mean changes .* ranks 0, 1, .*LayerNorm.*such as 1f1b"):
        trains(2, "chimera", build=build)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (lambda r: {"schedule": ("1f1b", "gpipe")[r]}, "rank 0 has schedule = 1f1b, rank 1 has gpipe"),
        (lambda r: {"micro_batches": 3 + r}, "rank 0 has micro_batches = 3, rank 1 has 4"),
        (lambda r: {"bounds": (0, 2 + r, 8)}, r"rank 0 has bounds = \[0, 2, 8\], rank 1 has \[0, 3, 8\]"),
        (lambda r: {"recompute": bool(r)}, "rank 0 has recompute = False, rank 1 has True"),
        (
            lambda r: {"schedule": "interleaved", "micro_batches": 4, "chunks": 1 + r},
            "rank 0 has chunks = 1, rank 1 has 2",
        ),
    ],
)
def test_ranks_with_different_settings_are_told(settings, message):
    with pytest.raises(ValueError, match=message):
        run_ranks(2, lambda comm: Pipeline(comm, **settings(comm.rank)).place(mlp(np.random.default_rng(0))))


@op
def failing(x, *, forwards, when):
    """The identity, which fails in the second ``forward`` or ``backward``."""
    forwards.append(None)
    count = len(forwards)
    if when == "forward" and count == 2:
        raise ZeroDivisionError("as if")

    def back(g):
        if when == "backward" and count == 2:
            raise ZeroDivisionError("as if")
        return g

    return x, (back,)


class Failing(nn.Module):
    def __init__(self, when):
        self.when, self.forwards = when, []

    def forward(self, x):
        return failing(x, forwards=self.forwards, when=self.when)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("when", ["forward", "backward"])
@pytest.mark.parametrize("stage", [0, 1])
def test_a_rank_that_fails_in_a_stage_ends_all_others(schedule, when, stage):
    """The error is its own, and nobody waits for it for ever: a deadlock would be another error."""

    def build(rng):
        layers = [nn.Linear(4, 4, rng=rng), nn.Tanh(), nn.Tanh(), nn.Linear(4, 3, rng=rng)]
        layers.insert(2 * stage + 1, Failing(when))
        return nn.Sequential(*layers)

    bounds = (0, 3 - stage, 5) if SCHEDULES[schedule].of(2, 4).stages == 2 else (0, 1, 2, 3, 5)
    with pytest.raises(ZeroDivisionError, match="as if"):
        trains_alone(2, schedule, build, bounds)


def trains_alone(ranks, schedule, build, bounds):
    (batch,) = batches_of([8])

    def work(comm):
        backend = Pipeline(comm, schedule, micro_batches=4, bounds=bounds)
        model = backend.place(build(np.random.default_rng(0)).to(dtype=np.float64))
        backend.step(model, batch, ops.cross_entropy)

    run_ranks(ranks, work, rendezvous=True)


@pytest.mark.parametrize("make", [Pipeline, LayerWise])
@pytest.mark.parametrize("frozen", [False, True])
def test_a_stage_is_frozen_before_it_is_placed(make, frozen):
    """Messages depend on which stages are trained, and a rank that stays away leaves the others waiting."""

    def work(comm):
        backend, build = make(comm), mlp(np.random.default_rng(0))
        for parameter in build.layers[0].parameters():
            parameter.requires_grad = frozen
        model = backend.place(build)
        for parameter in build.layers[0].parameters() if frozen is False else model.parameters():
            parameter.requires_grad = not frozen
        backend.step(model, batches_of([8])[0], ops.cross_entropy)

    says = "nothing to train" if frozen else "0.weight was frozen"
    with pytest.raises(ValueError, match=f"{says}.*set requires_grad before backend.place"):
        run_ranks(2, work)


def test_a_placed_model_refuses_an_open_tape():
    """Which would end at this rank's last layer, and give no gradients to the others."""

    def work(comm):
        model = Pipeline(comm, "1f1b").place(mlp(np.random.default_rng(0)).to(dtype=np.float64))
        with Tape(), pytest.raises(RuntimeError, match="train with backend.step"):
            model(batches_of((3,), (4,))[0].x)

    run_ranks(2, work)
