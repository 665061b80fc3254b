"""Laws of backends/model_parallel/spatial/layers.py and tiled_features.py: whatever windows, sizes and
ranks, a net whose images are split trains like the serial one.
"""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.comm import run_ranks
from backends.comm.trace import Traced
from backends.model_parallel.layers.sharding import ShardedTensor
from backends.model_parallel.model_parallel import ModelParallel
from backends.model_parallel.spatial.receptive_field import Window
from minigrad import Tensor, nn
from tests.backends.model_parallel.spatial.spatial_laws import (
    SPLITS,
    TILES,
    all_by,
    lenet,
    nets,
    passes,
    plan_for,
    sends_halos_and_weights,
    trains,
)


@pytest.mark.parametrize(("kind", "ranks"), SPLITS)
@settings(max_examples=settings().max_examples // 2)
@given(net=nets(most=1), seed=st.integers(0, 99))
def test_one_layer_passes_like_serial(kind, ranks, net, seed):
    passes(net, all_by(kind, net[0]), ranks, seed=seed)


@given(net=nets(least=2, kernel=4, dilation=2), split=st.sampled_from(SPLITS), seed=st.integers(0, 99))
def test_a_run_of_layers_passes_like_serial(net, split, seed):
    """Halos of several neighbours, tiles without rows, rows that a stride leaves over: all come up here."""
    kind, ranks = split
    passes(net, all_by(kind, net[0]), ranks, seed=seed)


@given(net=nets(least=2, kernel=3, dilation=1), data=st.data())
def test_layers_may_be_split_in_different_ways(net, data):
    plan, tiles = {}, [None, "rows", "tiles", "tiles 1x4"]
    for i, layer in enumerate(net[0].layers):
        plain = isinstance(layer, nn.Conv2d) and layer.settings["groups"] == 1
        kind = data.draw(st.sampled_from([*tiles, "filters", "gathered-filters"] if plain else tiles))
        plan |= {str(i): kind} if kind else {}
    passes(net, plan, 4)


def conv_and_pool(pool, **settings):
    conv = nn.Conv2d(2, 3, 3, rng=np.random.default_rng(0), dtype=np.float64, **settings)
    return nn.Sequential(conv, pool)


def test_an_image_of_one_row_on_six_ranks():
    net = conv_and_pool(nn.AvgPool2d(2), padding=2)
    passes((net, (2, 1, 4)), all_by("rows", net), 6)


@pytest.mark.parametrize(("kind", "ranks"), [("rows", 3), ("tiles 2x2", 4)])
def test_a_batch_of_no_samples_passes_too(kind, ranks):
    net = conv_and_pool(nn.MaxPool2d(2), padding=1)
    passes((net, (2, 6, 6)), all_by(kind, net), ranks, samples=0)


# Training


@given(
    split=st.sampled_from(SPLITS),
    sizes=st.lists(st.integers(2, 5), min_size=1, max_size=2),
    rows=st.integers(1, 3),
    columns=st.integers(1, 3),
    pool=st.sampled_from([nn.MaxPool2d, nn.AvgPool2d]),
    flatten=st.sampled_from(["gathered", "split", "row", "other row"]),
    dtype=st.sampled_from([np.float64, np.float32]),
)
def test_trains_like_serial(split, sizes, rows, columns, pool, flatten, dtype):
    norm = dtype == np.float64  # in float32 small batches through batch-norm magnify the last digits
    trains(lenet(norm, pool, rows, columns, dtype), split, sizes, flatten=flatten, dtype=dtype)


@pytest.mark.parametrize(("kind", "ranks"), [("rows", 2), ("rows", 3), ("tiles 2x2", 4)])
def test_wide_convolutions_train_like_serial_by_winograd_s_algorithm(kind, ranks):
    """Also where no tile's rows are a multiple of its tiles of four."""

    def build(_=None):
        rng = np.random.default_rng(0)
        layers = [nn.Conv2d(n, 32, 3, padding=p, rng=rng) for n, p in ((1, 1), (32, 1), (32, 2))]
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(32 * 12 * 8, 3, rng=rng))

    trains((build, (1, 10, 6)), (kind, ranks), [2], dtype=np.float32)


def test_frozen_weights_stay_as_they_are():
    build, image = lenet()

    def frozen(_=None):
        net = build()
        net.parameters()[0].requires_grad = False
        return net

    trains((frozen, image), ("rows", 3), [4, 2])


def test_a_row_layer_takes_what_a_split_flatten_leaves_without_a_message():
    build, image = lenet(norm=False)

    def work(comm):
        traced = Traced(comm)
        plan = plan_for(build(), "tiles 2x3", "row")
        placed: Any = ModelParallel(traced, plan, sample=image).place(build())
        *layers, flatten, linear = placed.layers
        a = ShardedTensor(Tensor(np.ones((2, *image))))
        for layer in layers:
            a = layer.sharded_forward(a)
        before = traced.record.ledger.sent()
        a = flatten.sharded_forward(a)
        assert a.shard_of(1) == linear.shard.on_axis(1) and traced.record.ledger.sent() == before

    run_ranks(6, work)


# Messages


@given(
    window=st.builds(Window, st.integers(1, 7), st.integers(1, 3), st.integers(0, 3), st.integers(1, 2)),
    tiles=st.sampled_from([*TILES, (4, 1), (6, 1)]),
    samples=st.integers(0, 2),
)
def test_bytes_are_the_halos_and_the_weights(window, tiles, samples):
    sends_halos_and_weights(window, tiles, samples)


@pytest.mark.parametrize("layer", [nn.MaxPool2d(2), nn.AvgPool2d(3), nn.MaxPool2d(1, stride=2), nn.Tanh()])
def test_windows_side_by_side_send_nothing(layer):
    def work(comm):
        traced = Traced(comm)
        first = nn.Conv2d(1, 2, 1, rng=np.random.default_rng(0))
        model: Any = ModelParallel(traced, {"0": "rows", "1": "rows"}).place(nn.Sequential(first, layer))
        before, a = traced.record.ledger.sent(), ShardedTensor(Tensor(np.ones((2, 1, 12, 6))))
        for split in model.layers:
            a = split.sharded_forward(a)
        assert traced.record.ledger.sent() == before

    run_ranks(2, work)


# Errors

IMAGE = (1, 1, 4, 9)


@pytest.mark.parametrize(
    ("layer", "kind", "ranks", "x", "text"),
    [
        (nn.MaxPool2d(2), "tiles 2x2", 3, IMAGE, "tiles 2x2 need 4 ranks, got 3; give rows and columns"),
        (nn.MaxPool2d(2), "tiles 0x3", 3, IMAGE, "tiles 0x3 need 0 ranks"),
        (nn.LayerNorm(3), "rows", 2, (1, 3), r"layer 0, LayerNorm\(3\), cannot be split by 'rows'"),
        (nn.MaxPool2d(2), "tiles 4", 4, IMAGE, "'rows', 'tiles' or for example 'tiles 2x3', got 'tiles 4'"),
        (nn.MaxPool2d(2), "rows 2x2", 4, IMAGE, "for example 'tiles 2x3', got 'rows 2x2'"),
        (nn.MaxPool2d(5), "rows", 2, IMAGE, r"a window of \(5, 5\) .* does not fit into images of \(4, 9\)"),
        (nn.MaxPool2d(2), "rows", 2, (1, 4), r"images \(N, C, H, W\), got shape \(1, 4\)"),
        (nn.Flatten(), "rows", 2, (1, 4), r"rows and tiles are of images \(N, C, H, W\), got shape \(1, 4\)"),
        (nn.AvgPool2d(2, padding=2), "rows", 2, IMAGE, "more than half of the window"),
    ],
)
def test_what_cannot_be_split_says_why(layer, kind, ranks, x, text):
    model = nn.Sequential(layer, nn.Linear(1, 1, rng=np.random.default_rng(0)))
    with pytest.raises(ValueError, match=text):
        run_ranks(ranks, lambda comm: ModelParallel(comm, {"0": kind}).place(model)(np.ones(x)))
