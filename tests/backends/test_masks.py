"""Laws of minigrad/random_mask.py: training with dropout equals the serial training in every layout."""

from functools import partial

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from backends.data_parallel.backup_workers import BackupWorkers
from backends.data_parallel.bucketed import Bucketed
from backends.data_parallel.data_parallel import DataParallel
from backends.data_parallel.naive import NaiveDataParallel
from backends.data_parallel.proportional import ProportionalDataParallel
from backends.data_parallel.shared_memory import SharedMemoryDataParallel
from backends.data_parallel.zero.sharded import Sharded
from backends.model_parallel.model_parallel import ModelParallel
from backends.pipeline import schedule_names
from backends.pipeline.layer_wise import LayerWise
from minigrad import nn, recomputed
from minigrad.random_mask import RandomMask
from minigrad.serial import Serial
from tests.backends import mask_laws
from tests.backends.mask_laws import (
    OPTIMIZERS,
    PLANS,
    Layout,
    by_layers,
    convolutional,
    dense,
    drop,
    drops_like_serial,
    on_a_grid,
)

REPLICAS = st.sampled_from(
    [
        DataParallel,
        NaiveDataParallel,
        ProportionalDataParallel,
        SharedMemoryDataParallel,
        BackupWorkers,
        partial(DataParallel, micro_batches=3),
        partial(Bucketed, bucket_bytes=100, micro_batches=2),
        *(partial(Sharded, stage=stage, bucket_bytes=200) for stage in (1, 2, 3)),
    ]
)


@st.composite
def layouts(draw, build):
    plan = draw(st.sampled_from(PLANS[build]))
    kind = draw(st.sampled_from(["serial", "data", "layers", "stages", "neurons", "grid"]))
    ranks = draw(st.integers(1, 4))
    if kind == "data":
        return Layout(ranks, draw(REPLICAS))
    if kind == "layers":
        return Layout(min(ranks, 3), partial(LayerWise, micro_batches=draw(st.integers(1, 3))))
    if kind == "stages":
        settings = {"recompute": draw(st.booleans()), "micro_batches": draw(st.integers(2, 5))}
        return Layout(
            min(ranks, 3), partial(by_layers, schedule=draw(st.sampled_from(["gpipe", "1f1b"])), **settings)
        )
    if kind == "neurons":
        return Layout(ranks, partial(ModelParallel, plan=plan, micro_batches=draw(st.integers(1, 3))))
    if kind == "grid":
        shape = draw(st.tuples(*[st.integers(1, 2)] * 3))
        data = draw(st.sampled_from([DataParallel, SharedMemoryDataParallel, partial(Sharded, stage=1)]))
        schedule = draw(st.sampled_from(["1f1b", "zb-h1", "interleaved"]))
        return Layout(
            int(np.prod(shape)), partial(on_a_grid, shape=shape, plan=plan, data=data, schedule=schedule)
        )
    micro_batches = draw(st.integers(1, 5))
    return Layout(1, lambda comm: Serial(micro_batches))


@given(
    build=st.sampled_from([dense, convolutional]),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    optimizer=st.sampled_from(sorted(OPTIMIZERS)),
    data=st.data(),
)
def test_every_layout_drops_like_the_serial_run(build, sizes, optimizer, data):
    layout = data.draw(layouts(build))
    drops_like_serial(layout, build, sizes, optimizer=OPTIMIZERS[optimizer], bound=1e-10)


@pytest.mark.parametrize("schedule", schedule_names())
def test_every_schedule_drops_like_the_serial_run(schedule):
    """Also those that keep a layer on two ranks."""
    drops_like_serial(Layout(2, partial(by_layers, schedule=schedule)), dense, (8, 7))


@pytest.mark.parametrize("strategy", [DataParallel, partial(Sharded, stage=1), by_layers])
def test_accumulated_steps_have_masks_of_their_own(strategy):
    drops_like_serial(Layout(2, strategy), dense, (8, 7, 5, 6), zero_every=2, update_every=2)


@pytest.mark.parametrize("strategy", [DataParallel, LayerWise, partial(Sharded, stage=3)])
def test_segments_that_run_again_drop_like_the_serial_run(strategy):
    again = lambda rng: recomputed(dense(rng), 3)  # noqa: E731
    drops_like_serial(Layout(2, strategy), again, oracle=dense)


@pytest.mark.parametrize(
    "law",
    [
        mask_laws.steps_drop_other_elements,
        mask_laws.layers_drop_other_elements,
        mask_laws.ranks_round_by_their_own_numbers,
    ],
)
def test_that(law):
    law()


# A mask


@given(
    shape=st.lists(st.integers(0, 20), max_size=3).map(tuple),
    rows=st.integers(1, 3),
    places=st.lists(st.integers(0, 30), max_size=8),
    step=st.integers(0, 1 << 40),
    p=st.sampled_from([0.0, 0.1, 0.5, 0.99]),
)
def test_a_sample_has_the_same_mask_among_any_others(shape, rows, places, step, p):
    whole = RandomMask(5, (1, 2), 0, step, range(31)).keep((31 * rows, *shape), p)
    own = whole.reshape(31, rows, *shape)[places].reshape(rows * len(places), *shape)
    mask = RandomMask(5, (1, 2), 0, step, np.array(places, int))
    np.testing.assert_array_equal(mask.keep(own.shape, p), own)


@pytest.mark.parametrize("p", [0.0, 1e-4, 0.3, 0.5, 0.999])
def test_the_share_that_is_dropped_is_p(p):
    n = 400_000
    dropped = n - int(RandomMask(5, step=3, places=range(50)).keep((50, n // 50), p).sum())
    assert abs(dropped - p * n) <= 5 * np.sqrt(p * (1 - p) * n)


def test_samples_that_are_not_on_the_first_axis_are_refused():
    model = nn.Sequential(nn.Flatten(), Turned(), drop(0.5))
    (batch,) = mask_laws.batches_of((4,))
    with pytest.raises(
        ValueError, match=r"in Dropout\(0.5\): .* shape \(3, 4\) is 3, no multiple of 4; transpose"
    ):
        Serial().step(model, type(batch)(batch.x[:, :3], batch.y), lambda out, _: out.mean())


class Turned(nn.Module):
    """Puts the samples on the last axis."""

    def forward(self, x):
        return x.T
