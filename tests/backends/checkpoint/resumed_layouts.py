"""Layouts of ranks and optimizers from which a training is resumed, drawn at random."""

from functools import partial

from hypothesis import strategies as st

from backends.data_parallel.bucketed import Bucketed
from backends.data_parallel.data_parallel import DataParallel
from backends.data_parallel.shared_memory import SharedMemoryDataParallel
from backends.data_parallel.zero.sharded import Sharded
from backends.grid import Grid
from backends.model_parallel.model_parallel import ModelParallel
from backends.pipeline.layer_wise import LayerWise
from backends.pipeline.pipeline import Pipeline
from backends.registry import OneRank
from backends.stack import Stack
from minigrad import optim
from tests.backends.checkpoint.resume_laws import Layout, scaled
from tests.backends.mask_laws import dense
from tests.nets import dropping, grouped, images, mlp

OPTIMIZERS = {
    "sgd": lambda ps: optim.SGD(ps, 0.1),
    "momentum": lambda ps: optim.SGD(ps, 0.1, momentum=0.9, weight_decay=0.01),
    "heavy ball": lambda ps: optim.HeavyBall(ps, 0.1),
    "adagrad": lambda ps: optim.Adagrad(ps, 0.05, eps=1e-3),
    "adam": lambda ps: optim.Adam(ps, 0.01, eps=1e-3),
    "clipped": lambda ps: optim.SGD(ps, 0.5, momentum=0.9).clipped(0.05),
    "lars": lambda ps: optim.LARS(ps, 1.0).clipped(0.5),
    "groups": grouped,
    "momentum in a group": lambda ps: optim.SGD(
        [group | {"momentum": m} for group, m in zip(optim.decay_groups(ps, 0.1), (0.9, 0.0), strict=True)],
        0.1,
    ),
    "amsgrad": lambda ps: optim.AdamW(ps, 0.01, eps=1e-3, amsgrad=True),
}


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


SIZES = st.lists(st.integers(1, 9), min_size=2, max_size=4)
