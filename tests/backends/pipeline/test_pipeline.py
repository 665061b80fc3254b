"""Laws of backends/pipeline/pipeline.py, engine.py and stages.py: a pipeline trains like one machine that
takes the same micro-batches, whatever the schedule.
"""

import weakref
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.comm import run_ranks
from backends.laws import bound_for
from backends.pipeline.pipeline import Pipeline
from backends.pipeline.schedules import SCHEDULES
from backends.pipeline.unidirectional import one_f_one_b
from minigrad import nn, ops
from minigrad.data import Batch
from minigrad.module import evaluation_mode
from minigrad.serial import Serial
from tests.backends.lanes import by_turns
from tests.backends.pipeline.pipeline_laws import (
    IN_ORDER,
    NUMBERS,
    TWO_WAY,
    Reversed,
    any_bounds,
    backwards_reversed,
    stages_may_pass_on_what_they_get,
    trains,
    watched,
)
from tests.nets import MODELS, OPTIMIZERS, batches_of, dropping, frozen, images, mlp, sample_of, tied

ONE_WAY = [name for name in SCHEDULES if name not in TWO_WAY]
HOW = st.one_of(
    st.just({}), st.just({"rendezvous": True}), st.integers(0, 99).map(lambda seed: {"seed": seed})
)


@pytest.mark.parametrize("schedule", SCHEDULES)
@settings(max_examples=settings().max_examples // 2)
@given(data=st.data())
def test_trains_like_serial(schedule, data):
    """To the last bit where gradients are summed in the same order."""
    numbers = data.draw(st.sampled_from(NUMBERS[schedule]))
    model = data.draw(st.sampled_from([m for m in MODELS if m != "dropping" or schedule in ONE_WAY]))
    build = MODELS[model]
    dtype = data.draw(st.sampled_from([np.float64, np.float64, np.float32]))
    optimizer = data.draw(st.sampled_from(["momentum"] if dtype is np.float32 else sorted(OPTIMIZERS)))
    left_out = data.draw(st.integers(0, 3))  # their gradients add up over the steps, in another order
    in_order = schedule in IN_ORDER and model != "tied" and left_out == 0
    same_bits = in_order and optimizer in ("momentum", "adam")
    # The statistics of few samples leave gradients that are nothing but rounding.
    least = 3 * numbers.micros if model == "dropping" and not same_bits else 1
    bounds = any_bounds(len(build(np.random.default_rng(0))), numbers.stages(schedule))  # pyright: ignore
    trains(
        numbers.ranks,
        schedule,
        numbers.micros,
        chunks=numbers.chunks,
        build=build,
        sizes=[least + n for n in data.draw(st.lists(st.integers(0, 9), min_size=2, max_size=3))],
        optimizer=optimizer,
        dtype=dtype,
        bound=0 if same_bits else bound_for(dtype),
        how=data.draw(HOW),
        bounds=data.draw(st.sampled_from(["bytes", *bounds])),
        recompute=data.draw(st.booleans()),
        left_out=left_out,
    )


@pytest.mark.parametrize(
    ("schedule", "bounds"), by_turns(SCHEDULES, [(0, 1, 5, 7, 8), (0, 2, 3, 6, 8), (0, 3, 5, 6, 8)])
)
def test_a_tied_weight_within_a_stage_across_stages_and_across_ranks(schedule, bounds):
    numbers = max(NUMBERS[schedule], key=lambda n: (n.stages(schedule) == 4, n.micros, n.chunks))
    for optimizer in ("clipped", "lars"):
        trains(
            numbers.ranks,
            schedule,
            numbers.micros,
            chunks=numbers.chunks,
            build=tied,
            bounds=bounds,
            optimizer=optimizer,
        )


def test_recomputing_draws_the_same_masks_and_moves_statistics_once():
    for schedule in IN_ORDER:
        trains(2, schedule, 4, build=dropping, recompute=True, bound=0)


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("bounds", [(0, 1, 7), (0, 2, 4, 7), (0, 3, 4, 7), (0, 2, 3, 4, 7), (0, 5, 7)])
def test_stages_may_pass_on_what_they_get(bounds, recompute):
    stages_may_pass_on_what_they_get(bounds, recompute=recompute)
    stages_may_pass_on_what_they_get(bounds, "zb-h1", recompute=recompute)


def test_backwards_in_reverse_order_are_serial_over_reversed_micro_batches():
    for ranks, micros in ((1, 3), (2, 4), (4, 7)):
        trains(
            ranks, backwards_reversed(), micros, sizes=(11, 3, 5), serial=Reversed(micros), bound=0, build=mlp
        )
    trains(3, backwards_reversed(), 4)


class Mean(nn.Module):
    def forward(self, x):
        return x.mean(axis=(2, 3))


def test_images_of_another_size_in_every_batch():
    """What comes is told by the shape of the samples, not by how many there are."""
    rng = np.random.default_rng(0)
    batches = [Batch(rng.normal(size=(5, 2, k, k)), rng.integers(0, 3, 5)) for k in (4, 6, 4, 5)]

    def build(rng):
        return nn.Sequential(
            nn.Conv2d(2, 3, 3, rng=rng),
            nn.Tanh(),
            nn.Conv2d(3, 4, 1, rng=rng),
            Mean(),
            nn.Linear(4, 3, rng=rng),
        )

    def work(comm):
        serial, model = (build(np.random.default_rng(0)).to(dtype=np.float64) for _ in range(2))
        backend = Pipeline(comm, "1f1b", micro_batches=2)
        placed = backend.place(model)
        for batch in batches:
            for p in (*serial.parameters(), *placed.parameters()):
                p.grad = None
            Serial(2).step(serial, batch, ops.cross_entropy)
            backend.step(placed, batch, ops.cross_entropy)
            expected, actual = Serial().state.full_gradients(serial), backend.state.full_gradients(placed)
            assert expected.keys() == actual.keys()
            for name, g in expected.items():
                np.testing.assert_array_equal(actual[name], g)

    run_ranks(3, work)


@pytest.mark.parametrize(("schedule", "how"), by_turns(SCHEDULES, product([mlp, images], [False, True])))
def test_what_is_received_has_memory_of_its_own_and_keeps_its_order(schedule, how):
    """Nothing received is written in the step; spoiled after it, like what was sent, it is not missed."""
    numbers = max(NUMBERS[schedule], key=lambda n: (n.ranks == 2, n.stages(schedule) == 4, n.micros))
    build, recompute = how
    bounds = (0, 1, 3, 5, len(build(np.random.default_rng(0)))) if numbers.stages(schedule) == 4 else "bytes"
    trains(
        numbers.ranks,
        schedule,
        numbers.micros,
        chunks=numbers.chunks,
        bounds=bounds,
        build=build,
        sizes=(9, 9, 3),
        pipeline=watched(channels_last=True),
        recompute=recompute,
    )


# What a rank holds and tells


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("build", [mlp, images, tied, frozen(1)])
def test_every_rank_evaluates_the_whole_model(schedule, build):
    """Also between two steps, and as often as it is asked."""
    numbers = max(NUMBERS[schedule], key=lambda n: (n.stages(schedule) == 4, n.chunks))
    serial = build(np.random.default_rng(0)).to(dtype=np.float64)
    batch, other = batches_of((5, 3), sample_of(build))

    def work(comm):
        model = build(np.random.default_rng(comm.rank)).to(dtype=np.float64)
        backend = Pipeline(comm, schedule, micro_batches=numbers.micros, chunks=numbers.chunks)
        placed = backend.place(model)
        with evaluation_mode(placed):
            actual = [placed(batch.x).data, placed(other.x).data]
        backend.step(placed, batch, ops.cross_entropy)
        placed.eval()
        names = [[*full(placed)] for full in (backend.state.full_parameters, backend.state.full_gradients)]
        return [*actual, placed(batch.x).data], names, [*backend.state.full_state(placed)]

    serial.eval()
    expected = [serial(batch.x).data, serial(other.x).data, serial(batch.x).data]
    for actual, names, state in run_ranks(numbers.ranks, work, rendezvous=True):
        for w, f in zip(expected, actual, strict=True):
            np.testing.assert_array_equal(f, w)
        assert names == [[*serial.named_parameters().keys()]] * 2
        assert state == []


def test_state_goes_by_serial_names_on_every_rank():
    serial = dropping(np.random.default_rng(0))
    states = [name for name in serial.state_dict() if name not in serial.named_parameters()]

    def work(comm):
        backend = Pipeline(comm, "1f1b")
        return [*backend.state.full_state(backend.place(dropping(np.random.default_rng(0))))]

    assert run_ranks(3, work) == [states] * 3


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_rank_keeps_its_own_parameters_only(schedule):
    """The model that was placed and the backend give away the parameters of other ranks."""
    numbers = max(NUMBERS[schedule], key=lambda n: (n.stages(schedule) == 4, n.chunks))

    def work(comm):
        model = tied(np.random.default_rng(0))
        alive = {name: weakref.ref(p) for name, p in model.named_parameters().items()}
        backend = Pipeline(comm, schedule, micro_batches=numbers.micros, chunks=numbers.chunks)
        placed = backend.place(model)
        assert {id(p) for p in model.parameters()} == {id(p) for p in placed.parameters()}
        assert {id(p) for p in placed.parameters()} == {
            id(p) for ref in alive.values() if (p := ref()) is not None
        }
        return {name for name, ref in alive.items() if ref() is not None}

    names_of_ranks = run_ranks(numbers.ranks, work)
    assert set.union(*names_of_ranks) == set(tied(np.random.default_rng(0)).named_parameters().keys())
    if schedule in ONE_WAY:
        assert all("0.weight" not in names for names in names_of_ranks[1:])
    else:
        assert names_of_ranks == names_of_ranks[::-1]


def test_an_order_alone_is_a_schedule_and_one_backend_cuts_one_model_after_another():
    def work(comm):
        backend = Pipeline(comm, one_f_one_b, micro_batches=3)
        results = []
        for build in (tied, mlp):
            backend.place(build(np.random.default_rng(0)))
            results.append(backend.bounds)
        return results

    for bounds in run_ranks(2, work):
        ends = [bound[-1] for bound in bounds]
        assert ends == [len(build(np.random.default_rng(0)).layers) for build in (tied, mlp)]
