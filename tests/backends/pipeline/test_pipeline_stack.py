"""Laws of backends/pipeline/pipeline.py and backends/stack.py: stacks of data by stages by neurons train
like serial, under every schedule.
"""

from functools import partial
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.comm import run_ranks
from backends.data_parallel import DataParallel
from backends.data_parallel.bucketed import Bucketed
from backends.data_parallel.zero.sharded import Sharded
from backends.grid import Grid
from backends.model_parallel.model_parallel import ModelParallel
from backends.pipeline.pipeline import Pipeline
from backends.pipeline.schedules import SCHEDULES
from backends.stack import Stack
from minigrad import nn
from tests.backends.lanes import by_turns
from tests.backends.pipeline.pipeline_laws import (
    IN_ORDER,
    NUMBERS,
    Numbers,
    Together,
    all_three_axes_train_like_serial,
    joint_norms_over_three_axes,
    stack_trains,
)
from tests.nets import OPTIMIZERS, batches_of, dropping, frozen, images, mlp, tied

DATA = {
    "replicated": DataParallel,
    "bucketed": partial(Bucketed, bucket_bytes=100, first_bucket_bytes=50),
    "micro-batches twice": partial(Bucketed, bucket_bytes=100, micro_batches=2),
    "sharded 1": partial(Sharded, stage=1, bucket_bytes=200),
    "sharded 2": partial(Sharded, stage=2, bucket_bytes=200),
}
PLANS = {
    "column, row": {"0": "column", "2": "row", "5": "column", "7": "row"},
    "row, classes": {"0": "row", "2": "column", "7": "classes"},
    "gathered": {"2": "gathered", "5": "row"},
}
IMAGE_PLANS = {
    "filters, channels": {"0": "filters", "2": "channels", "6": "row"},
    "rows": {"0": "rows", "1": "rows", "2": "rows"},
    "classes": {"0": "filters", "6": "classes"},
}


def numbers_of(schedule: str, ranks: int) -> Numbers:
    """The smallest that are more than one micro-batch."""
    return next(n for n in NUMBERS[schedule] if n.ranks == ranks and n.micros >= 4)


@pytest.mark.parametrize(
    ("schedule", "plans"),
    by_turns(SCHEDULES, zip(PLANS, IMAGE_PLANS, ("replicated", "bucketed", "sharded 2"), strict=True)),
)
def test_data_by_stages_by_neurons(schedule, plans):
    """Eight ranks; the second batch has fewer samples than there are data ranks or micro-batches."""
    numbers = numbers_of(schedule, 2)
    plan, of_images, data = plans
    for build, layers in ((mlp, PLANS[plan]), (images, IMAGE_PLANS[of_images])):
        stack_trains(
            (2, 2, 2),
            schedule,
            numbers.micros,
            layers,
            chunks=numbers.chunks,
            build=build,
            sizes=(9, 1),
            optimizer="clipped",
            data=DATA[data],
        )


@given(data=st.data())
def test_any_grid(data):
    schedule = data.draw(st.sampled_from(sorted(SCHEDULES)))
    pipe = data.draw(st.sampled_from(sorted({n.ranks for n in NUMBERS[schedule] if n.ranks <= 4})))
    numbers = data.draw(st.sampled_from([n for n in NUMBERS[schedule] if n.ranks == pipe]))
    ranks, model = data.draw(
        st.sampled_from([(d, m) for d in range(1, 5) for m in (1, 2, 3) if d * m * pipe <= 8])
    )
    stack_trains(
        (ranks, pipe, model),
        schedule,
        numbers.micros,
        data.draw(st.sampled_from(list(PLANS.values()))),
        chunks=numbers.chunks,
        sizes=data.draw(st.lists(st.integers(1, 9), min_size=2, max_size=3)),
        optimizer=data.draw(st.sampled_from(sorted(OPTIMIZERS))),
        data=DATA[data.draw(st.sampled_from(sorted(DATA)))],
        recompute=data.draw(st.booleans()),
    )


@pytest.mark.parametrize(("schedule", "data"), by_turns(SCHEDULES, [*DATA, "sharded 3"]))
def test_tied_weights_under_every_strategy_for_data(schedule, data):
    """Announced once, when all stages have found their parts; a batch of one leaves one rank none."""
    numbers = numbers_of(schedule, 2)
    strategy = DATA.get(data, partial(Sharded, stage=3))
    stack_trains(
        (2, 2, 1),
        schedule,
        numbers.micros,
        chunks=numbers.chunks,
        build=tied,
        sizes=(9, 1, 4),
        optimizer="lars",
        data=strategy,
    )


@pytest.mark.parametrize("optimizer", ["clipped", "groups", "lars"])
@pytest.mark.parametrize("data", DATA)
def test_joint_norms_are_those_of_the_whole_model(data, optimizer):
    """Over all three axes; a tied weight is on both stages, and layers are split or on both ranks of one."""
    joint_norms_over_three_axes(optimizer, DATA[data])


@pytest.mark.parametrize("traced", [False, True])
def test_all_three_axes_to_the_last_digits(traced):
    run_ranks(8, partial(all_three_axes_train_like_serial, traced=traced))


def normalised(rng):
    return nn.Sequential(
        nn.Conv2d(2, 3, 3, padding=1, rng=rng),
        nn.BatchNorm(3),
        nn.Tanh(),
        nn.Conv2d(3, 4, 3, rng=rng),
        nn.BatchNorm(4),
        nn.Flatten(),
        nn.Linear(16, 3, rng=rng),
    )


@pytest.mark.parametrize(
    ("schedule", "layout"),
    by_turns(
        [name for name in SCHEDULES if name in IN_ORDER or "1f1b" in name], product([1, 2], [False, True])
    ),
)
def test_batch_norm_over_all_data_ranks_meets_in_every_stage(schedule, layout):
    """Ranks without samples go through every micro-batch, in the same order as those that have some."""
    numbers, (model, recompute) = numbers_of(schedule, 2), layout
    stack_trains(
        (2, 2, model),
        schedule,
        numbers.micros,
        {"0": "filters", "3": "channels"} if model > 1 else None,
        chunks=numbers.chunks,
        build=normalised,
        sizes=(9, 1, 5),
        data=partial(DataParallel, batch_norm="synchronized"),
        serial=Together(numbers.micros, 2),
        recompute=recompute,
    )


def test_dropout_goes_on_alike_on_all_ranks_of_a_stage():
    stack_trains((1, 2, 2), "1f1b", 3, {"4": "column", "7": "row"}, build=dropping, serial=Together(3, 1))


def test_every_rank_of_a_grid_evaluates_the_whole_model():
    x = batches_of((5,))[0].x
    expected = mlp(np.random.default_rng(0)).to(dtype=np.float64)(x).data

    def work(comm):
        grid = Grid(comm, data=2, pipe=2, model=2)
        made = Stack(DataParallel(grid.data), Pipeline(grid.pipe), ModelParallel(grid.model, {"0": "column"}))
        return made.place(mlp(np.random.default_rng(comm.rank)).to(dtype=np.float64))(x).data

    for actual in run_ranks(8, work):
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-12)


def test_what_a_pipeline_inside_or_outside_a_stack_is():
    def work(comm):
        grid = Grid(comm, data=2, pipe=2)
        made = Stack(DataParallel(grid.data), Pipeline(grid.pipe, micro_batches=3))
        with pytest.raises(ValueError, match="DataParallel inside of it would run no passes.*put it outside"):
            Stack(Pipeline(grid.pipe), DataParallel(grid.data))
        with pytest.raises(ValueError, match="Pipeline inside of it would run no passes"):
            Stack(Pipeline(grid.pipe), Pipeline(grid.data))
        with pytest.raises(ValueError, match="ModelParallel inside of it would run no passes"):
            Stack(Pipeline(grid.pipe), ModelParallel(grid.data, micro_batches=2))
        return made.rank, made.size, made.micro_batches, made.traits.equals_serial

    assert run_ranks(4, work) == [(rank, 4, 3, True) for rank in range(4)]


@pytest.mark.parametrize("data", DATA)
def test_data_ranks_of_a_stage_without_anything_to_train_are_told(data):
    with pytest.raises(ValueError, match="has no parameter to train.*give every rank of a pipeline a layer"):
        stack_trains((2, 2, 1), build=frozen(1), bounds=(0, 1, 8), data=DATA[data])
    stack_trains((2, 2, 1), build=frozen(1), bounds=(0, 3, 8), data=DATA[data], serial=Together(4, 1))
