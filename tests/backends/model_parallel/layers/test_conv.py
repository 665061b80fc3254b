"""Laws of backends/model_parallel/layers/conv.py and pass_through.py: convolutions split by filters,
channels and groups pass and train like the serial ones.
"""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.comm import WithAllreduce, differentiable, run_ranks
from backends.laws import trains_like_serial
from backends.model_parallel.layers.conv import ChannelConv2d, FilterConv2d, GatheredConv2d
from backends.model_parallel.layers.pass_through import ChannelBatchNorm, ShardedFlatten
from backends.model_parallel.layers.sharding import ShardedTensor
from backends.model_parallel.model_parallel import ModelParallel
from minigrad import nn, ops
from minigrad.data import Batch, shares
from minigrad.op import op
from minigrad.tape import Tape
from minigrad.tensor import Tensor
from tests.backends.model_parallel.pass_laws import passes_like_serial
from tests.backends.model_parallel.split_models import allgathered, allreduced, contiguous_ring, sent, using

ACTING_ON_CHANNELS = {
    "relu": lambda n: nn.ReLU(),
    "tanh": lambda n: nn.Tanh(),
    "max pool": lambda n: nn.MaxPool2d(2),
    "padded pool": lambda n: nn.AvgPool2d(3, stride=2, padding=1),
    "batch norm": lambda n: nn.BatchNorm(n),
    "dropout": lambda n: nn.Dropout(0.3, rng=np.random.default_rng(n)),
    "softmax": lambda n: nn.Softmax(),  # of each row of pixels; it asks for the whole
}
MEAN_FREE = ("batch norm", "softmax")  # a bias in front of these has a gradient of nothing but noise


@st.composite
def convolutions(draw):
    """One convolution of any shape, a kind of split for it, and images that it just fits on, or nearly so."""
    kind = draw(st.sampled_from(["filters", "channels", "gathered-filters", "groups"]))
    groups = draw(st.integers(2, 4)) if kind == "groups" else 1
    kernel, stride, padding, dilation = (
        (draw(st.integers(low, high)), draw(st.integers(low, high)))
        for low, high in ((1, 5), (1, 3), (0, 2), (1, 2))
    )
    fits = [max(d * (k - 1) + 1 - 2 * p, 1) for k, p, d in zip(kernel, padding, dilation, strict=True)]
    size = [least + draw(st.integers(0, 3)) for least in fits]
    n_in, n_out = groups * draw(st.integers(1, 7 // groups)), groups * draw(st.integers(1, 9 // groups))
    bias, wide = draw(st.booleans()), draw(st.booleans())

    def build(rng=None):
        settings = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        rng = np.random.default_rng(n_in)
        # A convolution in front, so that the channels come cut.
        first = [nn.Conv2d(2, n_in, 1, rng=rng), nn.Tanh()] if wide else []
        layer = nn.Conv2d(n_in, n_out, kernel, **settings, bias=bias, rng=rng)
        return nn.Sequential(*first, layer).to(dtype=np.float64)

    return build, {"0": "filters", "2": kind} if wide else {"0": kind}, (2 if wide else n_in, *size)


def fits(plan, build, ranks):
    """Whether the channels come cut between groups."""
    if list(plan.values()) != ["filters", "groups"]:
        return True
    n_in = build()[0].weight.shape[0]
    size = n_in // build()[2].settings["groups"]
    return all(share.stop % size == 0 for share in shares(n_in, ranks))


@given(drawn=convolutions(), ranks=st.integers(1, 6), samples=st.integers(1, 3))
def test_one_convolution_passes_like_serial(drawn, ranks, samples):
    build, plan, image = drawn
    x = np.random.default_rng(samples).normal(size=(samples, *image))

    def work(comm):
        passes_like_serial(lambda c: ModelParallel(c, plan), comm, build, x)

    if fits(plan, build, ranks):
        run_ranks(ranks, work)
    else:
        with pytest.raises(ValueError, match="inside a group of .* channels; use .* ranks"):
            run_ranks(ranks, work)


def network(channels, between):
    """Builds convolutions 0, 3 of these channels, a layer and a ReLU behind each; Flatten 6 and Linear 7."""

    def build(rng=None):
        rng = np.random.default_rng(sum(channels))
        layers: list[nn.Module] = []
        for name, n_in, n_out in zip(between, channels, channels[1:], strict=False):
            layers.append(nn.Conv2d(n_in, n_out, 3, padding=1, rng=rng, bias=name not in MEAN_FREE))
            layers += [ACTING_ON_CHANNELS[name](n_out), nn.ReLU()]
        model = nn.Sequential(*layers)
        with nn.evaluation_mode(model):
            features = model(np.zeros((1, channels[0], 6, 5), np.float32)).size
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(features, 3, rng=rng)).to(dtype=np.float64)

    return build


def batches(channels, sizes, dtype: type = np.float64, classes=3):
    rng = np.random.default_rng(channels)
    return [
        Batch(rng.normal(size=(n, channels, 6, 5)).astype(dtype), rng.integers(0, classes, n)) for n in sizes
    ]


def law(strategy, ranks, build, sizes=(3, 2), dtype: type = np.float64, **settings):
    data = batches(2, sizes, dtype)

    def work(comm):
        trains_like_serial(strategy, comm, build, ops.cross_entropy, data, dtype=dtype, **settings)

    run_ranks(ranks, work)


LAYERS = st.lists(st.sampled_from(sorted(ACTING_ON_CHANNELS)), min_size=2, max_size=2)
SPLITS = st.sampled_from([None, "filters", "channels", "gathered-filters"])
LAST = st.sampled_from([None, "row", "column", "gathered"])


@given(
    widths=st.tuples(st.integers(1, 7), st.integers(1, 7)),
    between=LAYERS,
    kinds=st.tuples(SPLITS, SPLITS, LAST),
    ranks=st.integers(1, 6),
)
def test_networks_train_like_serial(widths, between, kinds, ranks):
    plan = {name: kind for name, kind in zip("037", kinds, strict=True) if kind}
    build = network((2, *widths), between)
    law(lambda comm: ModelParallel(comm, plan), ranks, build, bound=1e-11)


PAIR = {"0": "filters", "3": "channels", "7": "row"}


@pytest.mark.parametrize("between", sorted(ACTING_ON_CHANNELS))
def test_filters_and_channels_are_a_pair(between):
    law(lambda comm: ModelParallel(comm, PAIR), 3, network((2, 5, 4), (between, between)), bound=1e-11)


def test_single_precision():
    law(lambda comm: ModelParallel(comm, PAIR), 3, network((2, 5, 4), ("relu", "tanh")), dtype=np.float32)


def test_flattened_channels_stay_cut():
    build = network((2, 5, 5), ("max pool", "relu"))
    law(lambda comm: ModelParallel(comm, {"0": "channels", "3": "filters", "7": "row"}), 3, build)


def test_running_statistics_come_back_whole():
    def state(comm):
        backend = ModelParallel(comm, PAIR)
        model = backend.place(network((2, 5, 4), ("batch norm", "batch norm"))())
        own = {name: getattr(owner, attribute).shape for name, owner, attribute in model.named_arrays()}
        return own["1.running_mean"], {name: v.shape for name, v in backend.state.full_state(model).items()}

    parts, wholes = zip(*run_ranks(3, state), strict=True)
    assert parts == ((1,), (2,), (2,))
    assert wholes[0] == dict.fromkeys(("1.running_mean", "1.running_var"), (5,)) | dict.fromkeys(
        ("4.running_mean", "4.running_var"), (4,)
    )


# What is held and sent


@pytest.mark.parametrize("ranks", [1, 2, 3, 6])
def test_a_rank_holds_its_share_and_the_biases_added_after_sums(ranks):
    def share(comm):
        model = ModelParallel(comm, PAIR).place(network((2, 6, 12), ("batch norm", "relu"))())
        assert all(p.data.base is None for p in model.parameters())  # no view keeps the whole alive
        return sum(p.size for p in model.parameters())

    weights = (6 * 2 * 9) + (6 + 6) + 12 * 6 * 9 + (3 * 12 * 30)
    assert run_ranks(ranks, share) == [weights // ranks + 12 + 3] * ranks


def conv(n_in, n_out, **settings):
    return nn.Conv2d(n_in, n_out, 3, padding=1, rng=np.random.default_rng(0), **settings)


N, C, F, D, PIXELS = 2, 6, 12, 18, 6 * 6
MODELS = {
    "filters": [conv(C, F)],
    "naive pair": [conv(C, F), nn.ReLU(), conv(F, D)],
    "pair": [conv(C, F), nn.ReLU(), nn.MaxPool2d(2), nn.BatchNorm(F), conv(F, D)],
    "groups between": [conv(C, F), conv(F, F, groups=6), nn.ReLU(), conv(F, D)],
    "to the end": [
        conv(C, F),
        nn.MaxPool2d(3),
        nn.Flatten(),
        nn.Linear(F * 4, D, rng=np.random.default_rng(0)),
    ],
}


@pytest.mark.parametrize("ranks", [1, 2, 3, 6])
@pytest.mark.parametrize(
    ("model", "plan", "forward", "backward"),
    [
        ("filters", {"0": "gathered-filters"}, (allgathered, N * F * PIXELS), (allreduced, N * C * PIXELS)),
        (
            "naive pair",
            {"0": "gathered-filters", "2": "gathered-filters"},
            (allgathered, N * F * PIXELS, N * D * PIXELS),
            (allreduced, N * C * PIXELS, N * F * PIXELS),
        ),
        (
            "pair",
            {"0": "filters", "4": "channels"},
            (allreduced, N * D * PIXELS // 4),
            (allreduced, N * C * PIXELS),
        ),
        (
            "groups between",
            {"0": "filters", "1": "groups", "3": "channels"},
            (allreduced, N * D * PIXELS),
            (allreduced, N * C * PIXELS),
        ),
        ("to the end", {"0": "filters", "3": "row"}, (allreduced, N * D), (allreduced, N * C * PIXELS)),
    ],
)
def test_messages_and_numbers_are_the_closed_form(model, plan, forward, backward, ranks):
    x = np.ones((N, C, 6, 6))
    expected = [count(ranks, *numbers) for count, *numbers in (forward, backward)]

    def counted(comm):
        return sent(comm, nn.Sequential(*MODELS[model]).to(dtype=np.float64), plan, x)

    assert run_ranks(ranks, counted) == [expected] * ranks


@pytest.mark.parametrize(
    "plan", [PAIR, {"0": "gathered-filters", "3": "channels"}, {"0": "channels"}], ids=str
)
def test_images_and_their_gradients_stay_channels_last(plan):
    """Also where the transport's all-reduce answers in C order, as MPI's does."""

    arrays = []

    def work(comm):
        model = ModelParallel(WithAllreduce(comm, contiguous_ring), plan).place(
            network((2, 6, 6), ("relu", "tanh"))()
        )
        layers: list[Any] = list(model.children().values())
        x = Tensor(np.ones((2, 6, 5, 2)).transpose(0, 3, 1, 2), requires_grad=True)
        with Tape() as tape:
            a = ShardedTensor(spied(x, arrays=arrays))
            for layer in layers[:6]:
                a = layer.sharded_forward(a)
                a = ShardedTensor(spied(a.local, arrays=arrays), a.shards)
        tape.backward(a.local, np.ones((2, 6, 5, a.local.shape[1])).transpose(0, 3, 1, 2))

    run_ranks(3, work)
    assert len(arrays) == 3 * 2 * 7
    for x in arrays:
        image, row, column, channel = (x.strides[axis] for axis in (0, 2, 3, 1))
        assert image > row > column > channel == x.itemsize


@op
def spied(x, *, arrays):
    """x, noting it and its gradient."""
    arrays.append(x)

    def back(g):
        arrays.append(g)
        return g

    return x, (back,)


# Seeded bugs


class BiasOnEveryRank(ChannelConv2d):
    def sharded_forward(self, a):
        y = ops.conv2d(a.redistribute(self.shard).local, *self.own_parameters, **self.settings)
        return ShardedTensor(differentiable.fan_in(y, comm=self.shard.comm))


class GradientTimesRanks(ChannelConv2d):
    """Sums the gradient of one loss as if every rank had a loss of its own."""

    def sharded_forward(self, a):
        y = ops.conv2d(a.redistribute(self.shard).local, self.weight, **self.settings)
        bias = ops.reshape(self.own_parameters[1], shape=(-1, 1, 1))
        return ShardedTensor(differentiable.all_reduce(y, comm=self.shard.comm) + bias)


class NoFanOut(FilterConv2d):
    def sharded_forward(self, a):
        return ShardedTensor(
            ops.conv2d(a.gather().local, *self.own_parameters, **self.settings), (self.shard,)
        )


class GatheredBackwards(GatheredConv2d):
    """Joins the last rank's filters first."""

    def sharded_forward(self, a):
        a = super().sharded_forward(a)
        bounds = self.shard.bounds
        order = np.concatenate(
            [np.arange(bounds[r], bounds[r + 1]) for r in reversed(range(len(bounds) - 1))]
        )
        return ShardedTensor(a.local[:, order])


class StatisticsOfTheFirstChannels(ChannelBatchNorm):
    """Every rank moves the running statistics of its own channels, and shows the first rank's."""

    def __init__(self, layer, comm, into=None):
        super().__init__(layer, comm, into)
        for name in ("running_mean", "running_var"):
            self.shards.pop(name)


class FlattenedAsItLies(ShardedFlatten):
    """Puts the pixels of all channels side by side: one channel's features are no longer consecutive."""

    def sharded_forward(self, a):
        flat = super().sharded_forward(a)
        return ShardedTensor(
            ops.flatten(ops.transpose(a.local, axes=(0, 2, 3, 1)), start_axis=1), flat.shards
        )


BUGS = [
    (using({nn.Conv2d: {"channels": BiasOnEveryRank}}), PAIR),
    (using({nn.Conv2d: {"channels": GradientTimesRanks}}), PAIR),
    (using({nn.Conv2d: {"filters": NoFanOut}}), {"0": "channels", "3": "filters"}),
    (using({nn.Conv2d: {"gathered-filters": GatheredBackwards}}), {"0": "gathered-filters"}),
    (using(pass_through={nn.BatchNorm: StatisticsOfTheFirstChannels}), PAIR),
    (using(pass_through={nn.Flatten: FlattenedAsItLies}), {"0": "channels", "3": "filters", "7": "row"}),
]


@pytest.mark.parametrize(("bug", "plan"), BUGS, ids=[
    "bias-on-every-rank", "gradient-times-ranks", "no-fan-out", "gathered-backwards", "statistics-not-cut",
    "flattened-as-it-lies",
])  # fmt: skip
def test_the_law_catches(bug, plan):
    build = network((2, 6, 6), ("batch norm", "max pool") if plan == PAIR else ("tanh", "max pool"))
    law(lambda comm: ModelParallel(comm, plan), 3, build, bound=1e-11)
    with pytest.raises(AssertionError, match="of its scale on rank"):
        law(lambda comm: bug(comm, plan), 3, build)


# Errors


def placed(model, plan, ranks=3):
    run_ranks(ranks, lambda comm: ModelParallel(comm, plan).place(nn.Sequential(*model)))


@pytest.mark.parametrize(
    ("model", "plan", "message"),
    [
        ([conv(2, 4)], {"0": "column"}, "layer 0, .*'column'.*filters, channels, groups, gathered-filters"),
        ([conv(4, 4, groups=2)], {"0": "filters"}, "2 groups, .*split it by groups"),
        ([conv(4, 4, groups=2)], {"0": "channels"}, "2 groups, .*split it by groups"),
        ([conv(4, 4)], {"0": "groups"}, "one group, .*use filters or channels"),
        (
            [conv(2, 6), conv(6, 6, groups=2)],
            {"0": "filters", "1": "groups"},
            "the 6 channels come split at 2, 4, inside a group of 3 channels; use 1 or 2 ranks",
        ),
    ],
)
def test_splits_that_cannot_be(model, plan, message):
    with pytest.raises(ValueError, match=message):
        placed(model, plan)


def test_channels_that_do_not_agree_are_named():
    model = nn.Sequential(conv(2, 6), conv(5, 2))
    plan = {"0": "filters", "1": "channels"}
    with pytest.raises(ValueError, match="takes 5 channels or features, those before it give 6"):
        run_ranks(2, lambda comm: ModelParallel(comm, plan).place(model)(np.ones((2, 2, 4, 4))))
