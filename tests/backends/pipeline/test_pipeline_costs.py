"""Laws of backends/pipeline/engine.py and simulation.py: what a pipeline sends, holds and takes are the
closed forms, and the plan that is simulated.
"""

import tracemalloc
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from minigrad_course.machines.virtual_cluster import VirtualCluster

from backends.comm import run_ranks
from backends.comm.collectives import barrier
from backends.comm.collectives.link import Link
from backends.comm.trace import Traced
from backends.pipeline import engine
from backends.pipeline.pipeline import Pipeline
from backends.pipeline.schedules import SCHEDULES
from backends.pipeline.simulation import Costs, simulate
from backends.pipeline.trace import instruction_of
from minigrad import nn, ops
from minigrad.data import Batch
from minigrad.op import op
from minigrad.tensor import Parameter
from minigrad.work import Work as Samples
from tests.backends.lanes import thorough
from tests.backends.pipeline.broken_pipelines import broken
from tests.backends.pipeline.pipeline_laws import (
    NUMBERS,
    TWO_WAY,
    Counting,
    Numbers,
    any_bounds,
    sends_what_crosses,
)
from tests.nets import batches_of, frozen, mlp

# Messages


@pytest.mark.parametrize("schedule", SCHEDULES)
@settings(max_examples=settings().max_examples // 4)
@given(data=st.data())
def test_activations_cross_each_boundary_once_and_gradients_come_back(schedule, data):
    numbers = data.draw(st.sampled_from(NUMBERS[schedule]))
    bounds = data.draw(st.sampled_from(any_bounds(8, numbers.stages(schedule))))
    trained = data.draw(st.sampled_from([0, 2, 4, 5, 7]))  # the layers before it are frozen
    sends_what_crosses(
        numbers,
        schedule,
        samples=data.draw(st.integers(1, 11)),
        build=frozen(trained),
        bounds=bounds,
        trained=trained,
        dtype=data.draw(st.sampled_from([np.float32, np.float64])),
    )


@pytest.mark.parametrize(
    ("schedule", "p", "m", "v", "messages"),
    [
        ("gpipe", 4, 6, 1, 2 * 3 * 6),
        ("1f1b", 4, 6, 1, 2 * 3 * 6),
        ("zb-h1", 3, 5, 1, 2 * 2 * 5),
        ("interleaved", 2, 6, 3, 2 * 5 * 6),
        ("interleaved", 1, 6, 3, 0),  # between chunks of one rank nothing is sent
        ("chimera", 4, 6, 2, 2 * 3 * 6),
        ("dualpipe", 4, 8, 2, 2 * 3 * 8),
        ("zb-v", 3, 5, 2, 2 * 4 * 5),  # nothing at the turn
        ("dualpipe-v", 2, 4, 2, 2 * 2 * 4),
    ],
)
def test_messages_are_those_of_the_published_formula(schedule, p, m, v, messages):
    """(p - 1) m activations and as many gradients; (p v - 1) m where p ranks have v chunks."""
    (batch,) = batches_of([m])

    def count(comm):
        traced = Traced(comm)
        backend = Pipeline(traced, schedule, micro_batches=m, chunks=v)
        model = backend.place(mlp(np.random.default_rng(0)))
        before = traced.record.ledger.sent().messages
        backend.forward_backward(Samples(model, batch, ops.cross_entropy, 1.0))
        return traced.record.ledger.sent().messages - before

    assert sum(run_ranks(p, count)) == messages


def test_what_replicas_sum_has_the_size_of_the_parameters():
    """Chimera's gradients travel in their own dtype, with one number more for each parameter."""

    def count(comm, dtype):
        traced = Traced(comm)
        backend = Pipeline(traced, "chimera", micro_batches=2)
        model = backend.place(mlp(np.random.default_rng(0)).to(dtype=dtype))
        (batch,) = batches_of([4])
        batch = Batch(batch.x.astype(dtype), batch.y)
        loss = backend.forward_backward(Samples(model, batch, ops.cross_entropy, 1.0))
        before = traced.record.ledger.sent().bytes
        backend.finish(model, loss)
        return traced.record.ledger.sent().bytes - before

    numbers = sum(p.size + 1 for p in mlp(np.random.default_rng(0)).parameters())
    for dtype in (np.float32, np.float64):
        # Of two ranks each sends half of the sum, twice; and its loss.
        sent = run_ranks(2, partial(count, dtype=dtype))
        assert sum(sent) == 2 * (numbers * np.dtype(dtype).itemsize + 8)


# Memory


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    ("recompute", "first"), [(False, 0), (True, 0), thorough(False, 1), thorough(True, 1)]
)
def test_tapes_held_are_the_micro_batches_in_flight(monkeypatch, schedule, recompute, first):
    """With recomputation one: that of the micro-batch that goes back."""
    for numbers in NUMBERS[schedule][first :: 2 * max(1, len(NUMBERS[schedule]) // 8)]:
        counting = Counting()
        monkeypatch.setattr(engine, "Tape", counting.Tape)
        (batch,) = batches_of([2 * numbers.micros])

        def work(comm, numbers=numbers, batch=batch):
            backend = Pipeline(
                comm, schedule, micro_batches=numbers.micros, chunks=numbers.chunks, recompute=recompute
            )
            model = backend.place(mlp(np.random.default_rng(0)).to(dtype=np.float64))
            for _ in range(2):
                backend.step(model, batch, ops.cross_entropy)

        run_ranks(numbers.ranks, work)
        plan = simulate(SCHEDULES[schedule].of(*numbers))
        expected = [1 if recompute else plan.in_flight(rank) for rank in range(numbers.ranks)]
        assert counting.by_rank(numbers.ranks) == expected
        assert set(counting.in_flight.values()) == {0}
        if schedule in ("gpipe", "1f1b") and not recompute:
            p, m, _ = numbers
            assert expected == [m if schedule == "gpipe" else min(m, p - s) for s in range(p)]


ROWS, WIDE = 16, 4096
HELD = ROWS * WIDE * 8  # tanh's output, the one wide array that a tape of the wide stage keeps


def peak(
    schedule: str,
    ranks: int,
    stage: int,
    *,
    micros: int = 8,
    recompute: bool = False,
    pipeline: Any = Pipeline,
) -> int:
    """The most bytes that all ranks hold above what they start a step with, where one stage is wide."""

    def build(rng):
        widths = [WIDE if s == stage else 4 for s in range(ranks)]
        pairs = [(nn.Linear(4, w, rng=rng), nn.Tanh(), nn.Linear(w, 4, rng=rng)) for w in widths]
        return nn.Sequential(*(layer for three in pairs for layer in three))

    (batch,) = batches_of([ROWS * micros])
    results = []

    def work(comm):
        backend = pipeline(
            comm, schedule, micro_batches=micros, bounds=range(0, 3 * ranks + 1, 3), recompute=recompute
        )
        model = backend.place(build(np.random.default_rng(0)).to(dtype=np.float64))
        backend.step(model, batch, ops.cross_entropy)  # the gradients stay, and their memory
        barrier(comm)
        if comm.rank == 0:
            tracemalloc.start()
        barrier(comm)
        backend.forward_backward(Samples(model, batch, ops.cross_entropy, 1.0))
        barrier(comm)
        if comm.rank == 0:
            results.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()

    run_ranks(ranks, work)
    return results[0]


def holds_p_minus_s(ranks: int, stage: int, pipeline: Any = Pipeline) -> None:
    """The bytes are measured; what a backward needs besides is the same in both."""
    less = peak("gpipe", ranks, stage) - peak("1f1b", ranks, stage, pipeline=pipeline)
    assert less == pytest.approx((8 - (ranks - stage)) * HELD, rel=0.05)


def holds_inputs_only(schedule: str, pipeline: Any = Pipeline) -> None:
    less = peak(schedule, 2, 0) - peak(schedule, 2, 0, recompute=True, pipeline=pipeline)
    assert less == pytest.approx(((8 if schedule == "gpipe" else 2) - 1) * HELD, rel=0.05)


@pytest.mark.parametrize(("ranks", "stage"), [(2, 0), (2, 1), (3, 1), (4, 0), (4, 3)])
def test_1f1b_holds_the_activations_of_p_minus_s_micro_batches_where_gpipe_holds_all(ranks, stage):
    holds_p_minus_s(ranks, stage)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_recomputing_holds_the_inputs_only(schedule):
    holds_inputs_only(schedule)


# Time


@op
def worked(x, w, *, compute, seconds):
    """x + w, which takes so many seconds forward, for the input's gradient, and for the weight's."""
    forward, backward, weight = seconds
    compute(forward)

    def back(g):
        compute(backward)
        return g

    def to_weight(g):
        compute(weight)
        return g

    return x + w, (back, to_weight)


class Work(nn.Module):
    def __init__(self, compute, seconds):
        self.weight = Parameter(np.zeros(1))
        self.compute, self.seconds = compute, seconds

    def forward(self, x):
        return worked(x, self.weight, compute=self.compute, seconds=self.seconds)


class Wires(VirtualCluster):
    """A cluster in which messages do not wait for one another, as in the simulation."""

    def transfer(self, source, destination, nbytes, tag, now):
        return now + self.link.seconds(nbytes)


NOON = 2.0**20  # when the step starts on all ranks


@pytest.mark.parametrize("schedule", SCHEDULES)
@settings(max_examples=settings().max_examples // 2)
@given(data=st.data())
def test_a_step_takes_exactly_the_time_that_is_simulated(schedule, data):
    numbers = data.draw(st.sampled_from([n for n in NUMBERS[schedule] if n.ranks <= 4]))
    stages = numbers.stages(schedule)
    times = st.lists(st.integers(1, 9), min_size=stages, max_size=stages)
    forward, backward, weight = (data.draw(times) for _ in range(3))
    # The first stage has no input whose gradient anybody asks for.
    costs = Costs(forward, [0, *backward[1:]], weight, message=data.draw(st.sampled_from([0, 0, 1, 5])))
    keeps_to_the_plan(schedule, numbers, costs)


def keeps_to_the_plan(schedule, numbers: Numbers, costs: Costs, pipeline: Any = Pipeline) -> None:
    """Every instruction of every rank starts and stops as simulated, whatever stages and messages take."""
    plan = simulate(SCHEDULES[schedule].of(*numbers), costs)
    result = on_the_clock(schedule, numbers, costs, pipeline)
    for rank, spans in enumerate(result):
        assert spans == [(e.instruction, e.start, e.stop) for e in plan.of(rank)]
    assert max(stop for spans in result for *_, stop in spans) == plan.makespan


def on_the_clock(schedule, numbers: Numbers, costs: Any, pipeline: Any = Pipeline):
    """By rank, what it did in a step and when, where each stage is one layer that takes so many seconds."""
    seconds = [*zip(costs.forward, costs.backward, costs.weight, strict=True)]
    (batch,) = batches_of([numbers.micros])

    def work(comm):
        traced = Traced(comm)
        backend = pipeline(traced, schedule, micro_batches=numbers.micros, chunks=numbers.chunks)
        model = backend.place(nn.Sequential(*(Work(comm.compute, times) for times in seconds)))
        comm.compute(NOON - comm.time())
        backend.forward_backward(Samples(model, batch, lambda out, y: out.sum(), 1.0))
        return [
            (i, span.start - NOON, span.stop - NOON)
            for span in traced.record.closed()
            if (i := instruction_of(span.what)) is not None
        ]

    return Wires(numbers.ranks, Link(costs.message)).run(work)


def test_schedules_go_both_ways_in_less_time():
    """What is measured on the clock, in slots: GPipe 2 (m + p - 1), Chimera for m = p: 2 m + p - 2."""

    def makespan(schedule):
        chunks = 2 if schedule in TWO_WAY else 1
        # The first stage's backward is its weight's gradient.
        costs = Costs([1] * 4, [0, 1, 1, 1], [1, 0, 0, 0])
        done = on_the_clock(schedule, Numbers(4, 4, chunks), costs)
        return max(stop for spans in done for *_, stop in spans)

    assert (makespan("gpipe"), makespan("1f1b"), makespan("chimera")) == (14, 14, 10)


# Seeded bugs, with which gradients are right

KEEPS = """                entries = list(tape.entries)
                tape.backward(y, seed, on_grad)
                self.saved_inputs[place, "held"] = entries
"""
PLAN = Costs([1, 2], [0, 2], [1, 3], message=1)
BUGS = {
    "recomputes, and keeps the tapes too": (
        partial(holds_inputs_only, "gpipe"),
        ("engine", "            if self.recompute:\n", "            if False:\n"),
    ),
    "holds what it will not need until the step ends": (
        partial(holds_p_minus_s, 2, 0),
        ("engine", "                tape.backward(y, seed, on_grad)\n", KEEPS),
    ),
    "computes weights at once, and nothing in their place": (
        partial(keeps_to_the_plan, "zb-h1", Numbers(2, 4, 1), PLAN),
        ("engine", "if place in self.table.split[self.comm.rank]:", "if False:"),
    ),
    "idles for a second before every instruction": (
        partial(keeps_to_the_plan, "1f1b", Numbers(2, 4, 1), PLAN),
        ("engine", "        hook = ", "        self.p2p.comm.compute(1)\n            hook = "),
    ),
}


@pytest.mark.parametrize("bug", BUGS)
def test_the_law_catches(bug):
    law, change = BUGS[bug]
    law()
    with pytest.raises(AssertionError):
        law(pipeline=broken(change))
