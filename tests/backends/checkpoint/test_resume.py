"""A training goes on from a checkpoint as if it had not stopped, in the layout that wrote it or another."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.checkpoint.training_state import gather_state, load_state
from backends.comm import run_ranks
from backends.data_parallel.averaging import DiLoCo, ElasticAveraging, LocalSGD, ParallelSGD
from backends.data_parallel.bucketed import Bucketed
from backends.data_parallel.compression.compressed import Compressed, compressor_names
from backends.data_parallel.data_parallel import DataParallel
from backends.data_parallel.naive import NaiveDataParallel
from backends.data_parallel.proportional import ProportionalDataParallel
from backends.data_parallel.shared_memory import SharedMemoryDataParallel
from backends.data_parallel.zero.sharded import Sharded
from backends.grid import Grid
from backends.model_parallel.model_parallel import ModelParallel
from backends.pipeline import schedule_names
from backends.pipeline.layer_wise import LayerWise
from backends.pipeline.pipeline import Pipeline
from backends.registry import OneRank
from backends.stack import Stack
from minigrad import optim
from minigrad.data import Batch
from minigrad.lr_schedules import ReduceLROnPlateau
from tests.backends.checkpoint.resume_laws import (
    Layout,
    goes_on_in_another_layout,
    goes_on_with_the_same_bits,
    scaled,
)
from tests.backends.mask_laws import dense
from tests.nets import MODELS, batches_of, dropping, images, mlp, sample_of, tied

OPTIMIZERS = {
    "sgd": lambda ps: optim.SGD(ps, 0.1),
    "momentum": lambda ps: optim.SGD(ps, 0.1, momentum=0.9, weight_decay=0.01),
    "heavy ball": lambda ps: optim.HeavyBall(ps, 0.1),
    "adagrad": lambda ps: optim.Adagrad(ps, 0.05, eps=1e-3),
    "adam": lambda ps: optim.Adam(ps, 0.01, eps=1e-3),
    "clipped": lambda ps: optim.SGD(ps, 0.5, momentum=0.9).clipped(0.05),
    "lars": lambda ps: optim.LARS(ps, 1.0).clipped(0.5),
}
COPYING = ("chimera", "dualpipe")  # schedules with layers on two ranks, which allow no running statistics


def pipeline(ranks, schedule, micro_batches):
    return Layout(ranks, lambda comm: Pipeline(comm, schedule=schedule, micro_batches=micro_batches))


def stack(shape, strategy, schedule, plan):
    """A grid of ranks: ``strategy`` on the data axis, then a pipeline, then split layers."""
    data, pipe, model = shape

    def backend(comm):
        grid = Grid(comm, data=data, pipe=pipe, model=model)
        members = [strategy(grid.data)]
        members += [Pipeline(grid.pipe, schedule=schedule, micro_batches=2)] if pipe > 1 else []
        members += [ModelParallel(grid.model, plan)] if model > 1 else []
        return Stack(*members)

    return Layout(data * pipe * model, backend)


def data_parallel(ranks):
    """The strategies that share the batch and hold what a serial run holds.

    Not the naive one: there a parameter that no loss reaches has a gradient of zeros, and so a state.
    """
    return st.one_of(
        st.sampled_from(
            [
                DataParallel,
                SharedMemoryDataParallel,
                partial(DataParallel, micro_batches=2),
                partial(Bucketed, bucket_bytes=100),
            ]
        ),
        st.builds(
            partial,
            st.just(Sharded),
            stage=st.integers(1, 3),
            bucket_bytes=st.sampled_from([64, 300, 1 << 20]),
            overlap=st.booleans(),
        ),
    ).map(lambda strategy: Layout(ranks, strategy))


PLANS = {
    mlp: {"0": "column", "2": "row", "5": "column", "7": "gathered"},
    images: {"0": "filters", "2": "channels", "6": "row"},
    dropping: {"0": "gathered", "4": "column", "7": "row"},
    scaled: {"0": "column", "3": "row"},
    dense: {"0": "column", "2": "row", "4.1": "column", "7": "row"},
}


def layouts(build):
    """Every strategy whose ranks hold what a serial run does, and stacks of them; layers are split."""
    plan = PLANS[build]
    schedules = st.sampled_from(["gpipe", "1f1b", "zb-h1", "1f1b-pairs"])
    return st.one_of(
        st.just(Layout(1, OneRank)),
        st.integers(1, 5).flatmap(data_parallel),
        st.integers(1, 4).map(lambda ranks: Layout(ranks, lambda comm: ModelParallel(comm, plan))),
        st.builds(pipeline, st.integers(1, 3), schedules, st.sampled_from([2, 4])),
        st.integers(1, 3).map(lambda ranks: Layout(ranks, LayerWise)),
        st.builds(
            stack,
            st.tuples(*[st.integers(1, 2)] * 3),
            st.sampled_from([DataParallel, partial(Sharded, stage=2), SharedMemoryDataParallel]),
            schedules,
            st.just(plan),
        ),
    )


OWN = {
    "parallel-sgd": ParallelSGD,
    "local-sgd": partial(LocalSGD, period=2),
    "local-sgd, own momentum": partial(LocalSGD, period=2, average_momentum=False),
    "diloco": partial(DiLoCo, period=2),
    "elastic": partial(ElasticAveraging, period=2),
    "by layers": lambda comm: Stack(
        LocalSGD(Grid(comm, data=2, pipe=2).data, period=3),
        Pipeline(Grid(comm, data=2, pipe=2).pipe, micro_batches=2),
    ),
    **{name: partial(Compressed, compress=name) for name in compressor_names() if name != "example"},
    "dgc, warm": partial(Compressed, compress="dgc", warm_up=4, density=0.1),
}
"""Strategies whose ranks hold a state of their own."""


@pytest.mark.filterwarnings("ignore:compress=")
@pytest.mark.parametrize("name", OWN)
def test_the_own_state_of_ranks_goes_on_with_the_same_bits(name):
    ranks = 4 if name == "by layers" else 3
    optimizer = OPTIMIZERS["sgd" if "dgc" in name else "adam"]  # DGC has momentum of its own
    for k in (1, 3):
        layout = Layout(ranks, OWN[name])
        goes_on_with_the_same_bits(layout, mlp, optimizer, batches_of([7, 5, 9, 2, 8]), k)
    with pytest.raises(ValueError, match="resume with the same ranks"):
        goes_on_in_another_layout(
            Layout(ranks, OWN[name]), Layout(2, DataParallel), mlp, OPTIMIZERS["sgd"], batches_of([7, 5]), 1
        )


def test_the_naive_strategy_goes_on_with_the_same_bits():
    layout = Layout(3, NaiveDataParallel)
    goes_on_with_the_same_bits(layout, mlp, OPTIMIZERS["adam"], batches_of([7, 5, 9, 2]), 2)


def test_shares_by_speed_are_the_serial_training():
    """In another layout they begin evenly; on a clock they follow it, so not with the same bits."""
    layout = Layout(3, ProportionalDataParallel)
    for k in (1, 3):
        batches = batches_of([7, 5, 9, 8])
        goes_on_in_another_layout(layout, layout, mlp, OPTIMIZERS["adam"], batches, k)


SIZES = st.lists(st.integers(1, 9), min_size=2, max_size=4)


@given(
    build=st.sampled_from([mlp, images, dropping, scaled]),
    optimizer=st.sampled_from(sorted(OPTIMIZERS)),
    sizes=SIZES,
    dtype=st.sampled_from([np.float32, np.float64]),
    data=st.data(),
)
def test_a_resumed_training_has_the_bits_of_an_undisturbed_one(build, optimizer, sizes, dtype, data):
    layout, k = data.draw(layouts(build)), data.draw(st.integers(0, len(sizes)))
    batches = [Batch(b.x.astype(dtype), b.y) for b in batches_of(sizes, sample_of(build))]
    goes_on_with_the_same_bits(layout, build, OPTIMIZERS[optimizer], batches, k, dtype)


@pytest.mark.parametrize("schedule", schedule_names())
def test_every_schedule_resumes_with_the_same_bits(schedule):
    build = dense if schedule in COPYING else dropping
    goes_on_with_the_same_bits(pipeline(2, schedule, 4), build, OPTIMIZERS["adam"], batches_of([8, 7, 8]), 2)


@settings(max_examples=settings().max_examples * 4)  # 240 pairs in the thorough lane
@given(
    build=st.sampled_from([mlp, images, dense, scaled]),
    optimizer=st.sampled_from(sorted(OPTIMIZERS)),
    sizes=SIZES,
    data=st.data(),
)
def test_any_layout_goes_on_where_another_one_stopped(build, optimizer, sizes, data):
    before, after = data.draw(layouts(build)), data.draw(layouts(build))
    k = data.draw(st.integers(0, len(sizes)))
    batches = batches_of(sizes, sample_of(build))
    goes_on_in_another_layout(before, after, build, OPTIMIZERS[optimizer], batches, k)


@pytest.mark.parametrize("build", [tied, MODELS["frozen first"], MODELS["frozen but the last"]])
def test_tied_and_frozen_weights_go_on(build):
    stages = pipeline(2, "1f1b", 2)
    sharded = Layout(3, partial(Sharded, stage=3 if build is not tied else 2))
    batches = batches_of([5, 4, 6])
    for layout in (stages, sharded):
        goes_on_with_the_same_bits(layout, build, OPTIMIZERS["momentum"], batches, 1)
    goes_on_in_another_layout(stages, sharded, build, OPTIMIZERS["adam"], batches, 2)


def test_a_schedule_whose_state_was_not_saved_is_refused():
    model = mlp(np.random.default_rng(0))
    trainer = optim.SGD(model.parameters(), 0.1)
    plateau = ReduceLROnPlateau(trainer)

    def load(saved, schedule):
        def work(comm):
            backend = OneRank(comm)
            arrays, facts, _ = gather_state(comm, backend, model, trainer, saved)
            load_state(comm, backend, model, trainer, arrays, facts, same_layout=False, schedule=schedule)

        run_ranks(1, work)

    with pytest.raises(ValueError, match="holds a schedule's state, and the training goes on without one"):
        load(plateau, None)
    with pytest.raises(ValueError, match="holds no schedule's state, and the training goes on with one"):
        load(None, plateau)


@pytest.mark.parametrize("optimizer", ["adam", "heavy ball"])  # which have numbers in their state
def test_parameters_without_axes_go_on(optimizer):
    for layout in (Layout(1, OneRank), Layout(3, partial(Sharded, stage=2)), pipeline(2, "1f1b", 2)):
        goes_on_with_the_same_bits(layout, scaled, OPTIMIZERS[optimizer], batches_of([7, 5, 9]), 2)
