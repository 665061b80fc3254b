"""Laws of backends/model_parallel/naive.py, backends/model_parallel/layers/linear.py, pass_through.py,
layer.py and sharding.py: whatever neurons are split by columns and rows, the net passes and trains like
the serial one.
"""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.comm import differentiable, run_ranks
from backends.laws import trains_like_serial
from backends.model_parallel.layers.linear import ColumnLinear, RowLinear
from backends.model_parallel.layers.pass_through import ChannelBatchNorm, Elementwise, ShardedDropout
from backends.model_parallel.layers.sharding import Shard, ShardedTensor, even_shard
from backends.model_parallel.model_parallel import ModelParallel
from backends.model_parallel.naive import GatheredLinear
from minigrad import nn, ops
from minigrad.data import Batch
from minigrad.tensor import Tensor
from tests.backends.model_parallel.pass_laws import passes_like_serial
from tests.backends.model_parallel.split_models import allgathered, allreduced, sent, using

BETWEEN = {
    "tanh": lambda n: nn.Tanh(),
    "gelu": lambda n: nn.GELU(),
    "dropout": lambda n: nn.Dropout(0.4, rng=np.random.default_rng(n)),
    "layer norm": lambda n: nn.LayerNorm(n),
    "softmax": lambda n: nn.Softmax(),
    "batch norm": lambda n: nn.BatchNorm(n),
}


def mlp(widths, between, *, bias=True, frozen=()):
    """Builds linear layers 1, 3, 5, ... of these widths, with one layer between any two."""

    def build(rng=None):
        rng = np.random.default_rng(len(widths))
        layers: list[nn.Module] = [nn.Flatten()]
        for i, (n_in, n_out) in enumerate(zip(widths, widths[1:], strict=False)):
            layers += [BETWEEN[between[i - 1]](n_in)] if i else []
            needless = between[i : i + 1] == ["batch norm"]  # it takes the mean away: nothing but noise
            layers += [nn.Linear(n_in, n_out, rng=rng, bias=bias and not needless)]
        for number in frozen:
            layers[number].weight.requires_grad = False
        return nn.Sequential(*layers).to(dtype=np.float64)

    return build


@st.composite
def splits(draw):
    """A net of up to four linear layers, some of which are split, fewer neurons than ranks too."""
    n = draw(st.integers(1, 4))
    numbers = [str(2 * i + 1) for i in range(n)]
    widths = draw(st.lists(st.integers(3, 8), min_size=n + 1, max_size=n + 1))  # a norm of fewer is constant
    between = draw(st.lists(st.sampled_from(sorted(BETWEEN)), min_size=n - 1, max_size=n - 1))
    for i, (before, behind) in enumerate(pairwise(between), 1):
        if before.endswith("norm") and behind == "batch norm":  # takes away the bias of the one before
            between[i] = "tanh"
    splits = draw(
        st.lists(st.sampled_from([None, "column", "row", "gathered", "grid"]), min_size=n, max_size=n)
    )
    frozen = draw(st.sets(st.sampled_from([2 * i + 1 for i in range(n)]), max_size=n)) - {2 * n - 1}
    plan = {number: kind for number, kind in zip(numbers, splits, strict=True) if kind}
    return mlp(widths, between, bias=draw(st.booleans()), frozen=frozen), plan, widths


def batches(width, classes, sizes, dtype: type = np.float64):
    rng = np.random.default_rng(width)
    return [Batch(rng.normal(size=(n, width)).astype(dtype), rng.integers(0, classes, n)) for n in sizes]


@given(split=splits(), ranks=st.integers(1, 6), samples=st.integers(3, 6))
def test_passes_like_serial(split, ranks, samples):
    build, plan, widths = split
    x = np.random.default_rng(samples).normal(size=(samples, widths[0]))
    run_ranks(
        ranks, lambda comm: passes_like_serial(lambda c: ModelParallel(c, plan), comm, build, x, bound=1e-11)
    )


@given(split=splits(), ranks=st.integers(1, 6), sizes=st.lists(st.integers(3, 6), min_size=1, max_size=3))
def test_trains_like_serial(split, ranks, sizes):
    build, plan, widths = split
    data = batches(widths[0], widths[-1], sizes)
    run_ranks(
        ranks,
        lambda comm: trains_like_serial(
            lambda c: ModelParallel(c, plan), comm, build, ops.cross_entropy, data, bound=1e-11
        ),
    )


PAIRS = {"1": "column", "3": "row", "5": "column", "7": "row"}


def pairs(widths=(5, 7, 4, 6, 3), between="tanh"):
    return mlp(widths, [between] * 3)


def law(strategy, ranks=3, build=None, sizes=(5, 4), dtype: type = np.float64, rendezvous=False, **settings):
    build, data = build or pairs(), batches(5, 3, sizes, dtype)

    def work(comm):
        trains_like_serial(strategy, comm, build, ops.cross_entropy, data, dtype=dtype, **settings)

    run_ranks(ranks, work, rendezvous=rendezvous)


@pytest.mark.parametrize("widths", [(5, 7, 4, 6, 3), (5, 1, 2, 1, 3)], ids=["uneven", "less-than-ranks"])
@pytest.mark.parametrize("ranks", range(1, 7))
def test_pairs_of_columns_and_rows(ranks, widths):
    law(lambda comm: ModelParallel(comm, PAIRS), ranks, pairs(widths))


def test_nobody_waits_for_ever_where_sends_wait_for_their_receiver():
    plan = {"1": "column", "3": "row", "5": "gathered", "7": "row"}
    law(lambda comm: ModelParallel(comm, plan), 4, pairs(between="dropout"), rendezvous=True)


def test_pairs_in_single_precision():
    law(lambda comm: ModelParallel(comm, PAIRS), dtype=np.float32)


@pytest.mark.parametrize("plan", [PAIRS, {"1": "row"}, {}], ids=str)
def test_layers_that_drop_from_one_stream_keep_sharing_it(plan):
    def build(rng):
        draws = np.random.default_rng(int(rng.integers(1000)))  # another one on every rank
        layers = pairs()().children().values()
        return nn.Sequential(*(nn.Dropout(0.3, rng=draws) if isinstance(x, nn.Tanh) else x for x in layers))

    law(lambda comm: ModelParallel(comm, plan), build=build)


# Tokens (axis 1) are no features


class TokenSplit(Elementwise):
    """Gives the last rank but one most tokens: no layer splits its features so."""

    def sharded_forward(self, a):
        comm, tokens = self.comm, a.shape[1]
        bounds = (0,) * (comm.size - 1) + (tokens - 1, tokens) if comm.size > 1 else (0, tokens)
        return super().sharded_forward(a.split(Shard(1, comm, bounds)))

    def __init__(self, layer, comm: Any, in_sharding=None):
        super().__init__(layer)
        self.comm = comm


@given(ranks=st.integers(1, 4), n=st.integers(2, 5), kinds=st.lists(st.sampled_from(["column", "row"])))
def test_as_many_tokens_as_features_are_still_tokens(ranks, n, kinds):
    """The features keep their even split, no rank exchanges what it has, and the model is the serial one."""
    kinds = kinds[:3]

    def build(rng=None):
        rng = np.random.default_rng(n)
        layers: list[nn.Module] = [nn.Sigmoid()]
        for _ in kinds:
            layers += [nn.Linear(n, n, rng=rng), nn.Tanh()]
        return nn.Sequential(*layers).to(dtype=np.float64)

    plan, x = {str(2 * i + 1): kind for i, kind in enumerate(kinds)}, np.ones((2, n, n)) / np.arange(1, n + 1)
    strategy = using(pass_through={nn.Sigmoid: TokenSplit})

    def work(comm):
        placed: Any = strategy(comm, plan, sample=(n, n)).place(build())
        even = even_shard(0, comm, n).bounds
        assert all(layer.shard.bounds == even for layer in placed.layers[1::2])
        passes_like_serial(lambda c: strategy(c, plan, sample=(n, n)), comm, build, x, bound=1e-11)

    run_ranks(ranks, work)


def test_the_axis_of_features_is_that_of_the_array():
    def work(comm):
        for shape, axis in (((2, 4), 1), ((2, 4, 4), 2), ((2, 4, 4, 4), 1)):
            split = [
                ShardedTensor(Tensor(np.ones(shape)), (even_shard(i, comm, 8),)) for i in range(1, len(shape))
            ]
            assert [a.feature_shard() is not None for a in split] == [i == axis for i in range(1, len(shape))]
            (shard,) = ShardedTensor(Tensor(np.ones(shape)), (even_shard(-1, comm, 8),)).shards
            assert shard.axis == len(shape) - 1

    run_ranks(2, work)


# What is held


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_a_rank_holds_its_share_of_the_weights_and_the_row_biases(ranks):
    def share(comm):
        model = ModelParallel(comm, PAIRS).place(pairs(widths=(5, 30, 4, 60, 3))())
        assert all(p.data.base is None for p in model.parameters())  # no view keeps the whole alive
        return sum(p.size for p in model.parameters())

    shard = 5 * 30 + 30 + 30 * 4 + 4 * 60 + 60 + 60 * 3
    assert run_ranks(ranks, share) == [shard // ranks + 4 + 3] * ranks


# What is sent


@pytest.mark.parametrize("ranks", [1, 2, 3, 6])
def test_a_pair_needs_one_all_reduce_each_way(ranks):
    n, n_in, hidden, n_out = 6, 12, 24, 18
    build, x = mlp((n_in, hidden, n_out), ["tanh"]), np.ones((n, n_in))
    pair, naive = {"1": "column", "3": "row"}, {"1": "gathered", "3": "gathered"}
    for forward, backward in run_ranks(ranks, lambda comm: sent(comm, build(), pair, x)):
        assert forward == allreduced(ranks, n * n_out)
        assert backward == allreduced(ranks, n * n_in)
    for forward, backward in run_ranks(ranks, lambda comm: sent(comm, build(), naive, x)):
        assert forward == allgathered(ranks, n * hidden, n * n_out)
        assert backward == allreduced(ranks, n * hidden, n * n_in)


def test_a_pair_sends_half_of_the_naive_form_backward_at_equal_widths():
    """Forward one all-reduce moves what two all-gathers move, and less where the hidden layer is wider."""
    build, x = mlp((12, 12, 12), ["tanh"]), np.ones((6, 12))
    pair = run_ranks(3, lambda comm: sent(comm, build(), {"1": "column", "3": "row"}, x))[0]
    naive = run_ranks(3, lambda comm: sent(comm, build(), {"1": "gathered", "3": "gathered"}, x))[0]
    (_, pair_forward), (_, pair_backward) = pair
    (_, naive_forward), (_, naive_backward) = naive
    assert (pair_forward, 2 * pair_backward) == (naive_forward, naive_backward)


def test_the_first_layer_sends_nothing_backward():
    build, x = mlp((12, 12, 12), ["tanh"]), np.ones((6, 12))
    results = run_ranks(
        3, lambda comm: sent(comm, build(), {"1": "column", "3": "row"}, x, wants_gradient=False)
    )
    assert [backward for _, backward in results] == [(0, 0)] * 3


# Seeded bugs


class BiasOnEveryRank(RowLinear):
    def sharded_forward(self, a):
        y = ops.linear(a.redistribute(self.shard).local, *self.own_parameters)
        return ShardedTensor(differentiable.fan_in(y, comm=self.shard.comm))


class NoFanOut(ColumnLinear):
    """Each rank keeps its own part of the input's gradient."""

    def sharded_forward(self, a):
        return ShardedTensor(ops.linear(a.gather().local, *self.own_parameters), (self.shard,))


class GradientTimesRanks(RowLinear):
    """Sums the gradient of one loss as if every rank had a loss of its own."""

    def sharded_forward(self, a):
        y = ops.linear(a.redistribute(self.shard).local, self.weight)
        return ShardedTensor(differentiable.all_reduce(y, comm=self.shard.comm) + self.bias)


class NeverSummed(RowLinear):
    def sharded_forward(self, a):
        return ShardedTensor(ops.linear(a.redistribute(self.shard).local, *self.own_parameters))


class GatheredForManyLosses(GatheredLinear):
    def sharded_forward(self, a):
        x = differentiable.fan_out(a.gather().local, comm=self.comm)
        y = ops.linear(x, *self.own_parameters)
        return ShardedTensor(differentiable.all_gather(y, comm=self.comm, axis=1))


class GatheredBackwards(GatheredLinear):
    """Joins the last rank's neurons first."""

    def sharded_forward(self, a):
        y = super().sharded_forward(a).local
        order = np.concatenate([np.arange(y.shape[1])[shard] for shard in reversed(parts(self.neurons))])
        return ShardedTensor(ops.getitem(y, index=(slice(None), order)))


def parts(shard):
    return [slice(start, stop) for start, stop in zip(shard.bounds, shard.bounds[1:], strict=False)]


class EachDropsItsOwn(ShardedDropout):
    """Every rank goes on with the random numbers it has."""

    def __init__(self, layer: Any, comm: Any, in_sharding=None):
        own = nn.Dropout(layer.p, rng=np.random.default_rng(comm.rank))
        super().__init__(own, comm, in_sharding)


class MaskOfThePart(ShardedDropout):
    """Draws for the part only: the same mask on every rank, and not the serial one."""

    def sharded_forward(self, a):
        return ShardedTensor(self.layer(a.local), a.shards)


class StatisticsNotCut(ChannelBatchNorm):
    def __init__(self, layer, comm, in_sharding=None):
        super().__init__(layer, comm, in_sharding)
        for name in ("running_mean", "running_var"):
            self.shards.pop(name, None)


GATHERED = dict.fromkeys("1357", "gathered")
WHOLE: dict[str, str] = {}
BUGS = [
    (using({nn.Linear: {"row": BiasOnEveryRank}}), PAIRS, "tanh"),
    (using({nn.Linear: {"row": GradientTimesRanks}}), PAIRS, "tanh"),
    (using({nn.Linear: {"row": NeverSummed}}), PAIRS, "tanh"),
    (using({nn.Linear: {"column": NoFanOut}}), PAIRS, "tanh"),
    (using({nn.Linear: {"gathered": GatheredForManyLosses}}), GATHERED, "tanh"),
    (using({nn.Linear: {"gathered": GatheredBackwards}}), GATHERED, "tanh"),
    (using(pass_through={nn.Dropout: EachDropsItsOwn}), WHOLE, "dropout"),
    (using(pass_through={nn.Dropout: EachDropsItsOwn}), PAIRS, "dropout"),
    (using(pass_through={nn.Dropout: MaskOfThePart}), PAIRS, "dropout"),
    (using(pass_through={nn.Softmax: Elementwise}), PAIRS, "softmax"),
    (using(pass_through={nn.BatchNorm: StatisticsNotCut}), {"1": "column", "3": "row"}, "batch norm"),
]
NAMES = [
    "bias-on-every-rank", "gradient-times-ranks", "never-summed", "no-fan-out", "gathered-for-many-losses",
    "gathered-backwards", "each-drops-its-own-whole", "each-drops-its-own-cut", "mask-of-the-part",
    "softmax-of-a-part", "statistics-not-cut",
]  # fmt: skip


@pytest.mark.parametrize(("bug", "plan", "between"), BUGS, ids=NAMES)
def test_the_law_catches(bug, plan, between):
    widths = (5, 6, 3) if between == "batch norm" else (5, 6, 6, 6, 3)
    build = mlp(widths, [between] * (len(widths) - 2))
    law(lambda comm: ModelParallel(comm, plan), build=build, bound=1e-11)
    with pytest.raises(AssertionError, match="of its scale on rank"):
        law(lambda comm: bug(comm, plan), build=build)


def test_the_first_layers_wrong_input_gradient_is_caught_too():
    """Training does not show it: nobody needs the gradient of the images."""
    plan, build = {"1": "column"}, mlp((5, 6), [])
    bug = using({nn.Linear: {"column": NoFanOut}})
    law(lambda comm: bug(comm, plan), build=mlp((5, 3), []))
    with pytest.raises(AssertionError, match="input gradient by"):
        run_ranks(3, lambda comm: passes_like_serial(lambda c: bug(c, plan), comm, build, np.ones((2, 5))))


# Errors


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ({"1": "filters"}, "layer 1, .*cannot be split by 'filters'.*column, row, gathered"),
        ({"2": "column"}, "layer 2, .*LayerNorm.*leave it out of the plan"),
    ],
)
def test_a_kind_that_a_layer_cannot_have(plan, message):
    with pytest.raises(ValueError, match=message):
        run_ranks(1, lambda comm: ModelParallel(comm, plan).place(mlp((5, 4, 3), ["layer norm"])()))


def test_sizes_that_do_not_agree_are_named():
    model = nn.Sequential(
        nn.Linear(4, 6, rng=np.random.default_rng(0)), nn.Linear(5, 2, rng=np.random.default_rng(0))
    )
    with pytest.raises(ValueError, match="takes 5 channels or features, those before it give 6"):
        run_ranks(
            2, lambda comm: ModelParallel(comm, {"0": "column", "1": "row"}).place(model)(np.ones((2, 4)))
        )
