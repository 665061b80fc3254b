"""Laws of backends/checkpoint/training_state.py, backends/data_parallel/sharded_optimizer.py,
minigrad/own_state.py and placed_state.py: a training goes on from a checkpoint as if it had not stopped,
in the layout that wrote it or another.
"""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.checkpoint.training_state import gather_state, load_state
from backends.comm import run_ranks
from backends.data_parallel.averaging import DiLoCo, ElasticAveraging, LocalSGD, ParallelSGD
from backends.data_parallel.compression.compressed import Compressed, compressor_names
from backends.data_parallel.data_parallel import DataParallel
from backends.data_parallel.naive import NaiveDataParallel
from backends.data_parallel.proportional import ProportionalDataParallel
from backends.data_parallel.zero.sharded import Sharded
from backends.grid import Grid
from backends.model_parallel.model_parallel import ModelParallel
from backends.pipeline import schedule_names
from backends.pipeline.pipeline import Pipeline
from backends.registry import OneRank
from backends.sequence_parallel import SequenceParallel
from backends.stack import Stack
from minigrad import optim
from minigrad.data import Batch
from minigrad.lr_schedules import ReduceLROnPlateau
from minigrad.nn import CrossEntropyLoss
from tests.backends.checkpoint.resume_laws import (
    Layout,
    goes_on_in_another_layout,
    goes_on_with_the_same_bits,
    scaled,
)
from tests.backends.checkpoint.resumed_layouts import OPTIMIZERS, SIZES, layouts, pipeline, stack
from tests.backends.lanes import IS_THOROUGH
from tests.backends.mask_laws import dense
from tests.backends.model_parallel.transformer_laws import FORMS, TOKEN_LOSS, Net, adamw
from tests.backends.sequence_parallel import sequence_laws
from tests.nets import MODELS, batches_of, dropping, images, mlp, sample_of, tied

COPYING = ("chimera", "dualpipe")  # schedules with layers on two ranks, which allow no running statistics


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


TRANSFORMER = Net(heads=3, tokens=5, symbols=7)
TRANSFORMERS = {
    "serial": Layout(1, OneRank),
    "data": Layout(2, DataParallel),
    **{
        f"{form} x {ranks}": Layout(
            ranks, partial(ModelParallel, plan=TRANSFORMER.plan(vocabulary=True), **settings)
        )
        for ranks, (form, settings) in zip((2, 3, 2), FORMS.items(), strict=True)
    },
    "pipe x tokens": stack((1, 2, 2), DataParallel, "1f1b", TRANSFORMER.plan(vocabulary=True)),
}


def pairs_of(layouts):
    """Each layout before each one; in the quick lane before the two that follow it in a circle."""
    distances = {
        (before, after): (j - i) % len(layouts)
        for i, before in enumerate(layouts)
        for j, after in enumerate(layouts)
    }
    return [
        pytest.param(*pair, marks=[] if distance in (1, 2) else pytest.mark.thorough)
        for pair, distance in distances.items()
    ]


@pytest.mark.parametrize(("before", "after"), pairs_of(TRANSFORMERS))
def test_a_split_transformer_goes_on_in_another_layout(before, after):
    """Also its table, which both ends have in parts."""
    batches, loss = TRANSFORMER.batches(7, 5, 1, 4), CrossEntropyLoss(class_axis=-1)
    for batch in batches:
        batch.y[batch.y < 0] = 0
    goes_on_in_another_layout(
        TRANSFORMERS[before], TRANSFORMERS[after], TRANSFORMER.build, adamw, batches, 2,
        loss_fn=lambda out, y: loss(out, y),
    )  # fmt: skip


SHARED_TOKENS = {
    "serial": Layout(1, OneRank),
    "data": Layout(2, DataParallel),
    "ring": Layout(2, SequenceParallel),
    "ulysses": Layout(3, partial(SequenceParallel, form="ulysses")),
    "data x ring x heads": Layout(
        8, lambda comm: sequence_laws.stack(comm, TRANSFORMER, data=2, sequence=2, model=2)
    ),
}


@pytest.mark.parametrize(("before", "after"), pairs_of(SHARED_TOKENS))
def test_a_training_with_shared_tokens_goes_on_in_another_layout(before, after):
    goes_on_in_another_layout(
        SHARED_TOKENS[before], SHARED_TOKENS[after], TRANSFORMER.build, adamw,
        TRANSFORMER.batches(7, 5, 1, 4), 2, loss_fn=TOKEN_LOSS,
    )  # fmt: skip


def test_the_naive_strategy_goes_on_with_the_same_bits():
    layout = Layout(3, NaiveDataParallel)
    goes_on_with_the_same_bits(layout, mlp, OPTIMIZERS["adam"], batches_of([7, 5, 9, 2]), 2)


def test_shares_by_speed_are_the_serial_training():
    """In another layout they begin evenly; on a clock they follow it, so not with the same bits."""
    layout = Layout(3, ProportionalDataParallel)
    for k in (1, 3):
        batches = batches_of([7, 5, 9, 8])
        goes_on_in_another_layout(layout, layout, mlp, OPTIMIZERS["adam"], batches, k)


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


@settings(max_examples=settings().max_examples * (4 if IS_THOROUGH else 2))
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
