"""Laws of backends/model_parallel/layers/vocabulary.py: a table split by its symbols is the whole one, and so
are losses of its scores.
"""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.comm import run_ranks
from backends.comm.trace import Traced
from backends.model_parallel.layers.class_parallel import class_parallel_loss
from backends.model_parallel.layers.sharding import Shard
from backends.model_parallel.layers.vocabulary import embedding_of_part
from backends.model_parallel.model_parallel import ModelParallel
from minigrad import nn
from minigrad.nn import CrossEntropyLoss
from minigrad.tape import Tape
from minigrad.tensor import Tensor
from tests.backends.model_parallel.transformer_laws import Net, trains

BOUNDS = st.lists(st.integers(0, 7), max_size=3).map(lambda cuts: (0, *sorted(cuts), 7))


@given(bounds=BOUNDS, shape=st.tuples(st.integers(0, 3), st.integers(1, 5)), seed=st.integers(0, 99))
def test_lookups_of_parts_add_up(bounds, shape, seed):
    rng = np.random.default_rng(seed)
    table, x, g = rng.normal(size=(7, 3)), rng.integers(0, 7, shape), rng.normal(size=(*shape, 3))

    def work(comm) -> tuple[Any, ...]:
        shard = Shard(0, comm, bounds)
        leaf = Tensor(shard.local_part(table), requires_grad=True)
        with Tape() as tape:
            y = embedding_of_part(leaf, x, shard=shard)
        tape.backward(y, g)
        return y.data, leaf.grad

    parts = run_ranks(len(bounds) - 1, work)
    gradient = np.zeros_like(table)
    for place in np.ndindex(*shape):
        gradient[x[place]] += g[place]
    np.testing.assert_array_equal(sum(y for y, _ in parts), table[x])
    np.testing.assert_allclose(np.concatenate([d for _, d in parts]), gradient, atol=1e-13)


@pytest.mark.parametrize(
    ("x", "error"), [([[0, 7]], ValueError), ([[-1, 2]], ValueError), ([[0.5]], TypeError)]
)
def test_a_symbol_that_no_rank_has_is_refused(x, error):
    def work(comm):
        embedding_of_part(Tensor(np.zeros((4, 2))[comm.rank :]), np.array(x), shard=Shard(0, comm, (0, 4, 7)))

    with pytest.raises(error, match="embedding (indices run|needs integer)"):
        run_ranks(2, work)


LOSSES = {
    "ignored": CrossEntropyLoss(ignore_index=-1, class_axis=-1),
    "ignored symbol": CrossEntropyLoss(ignore_index=0, class_axis=-1),
    "plain": CrossEntropyLoss(class_axis=-1),
    "sum": CrossEntropyLoss(class_axis=-1, ignore_index=-1, reduction="sum"),
    "smooth": CrossEntropyLoss(class_axis=-1, ignore_index=-1, label_smoothing=0.1),
    "weighted": CrossEntropyLoss(class_axis=-1, ignore_index=-1, weight=np.arange(1.0, 8.0)),
}


@pytest.mark.parametrize("name", LOSSES)
@given(bounds=BOUNDS, shape=st.tuples(st.integers(1, 3), st.integers(1, 4)), seed=st.integers(0, 99))
def test_a_loss_of_split_scores_is_that_of_the_whole(name, bounds, shape, seed):
    rng, loss = np.random.default_rng(seed), LOSSES[name]
    logits = 3 * rng.normal(size=(*shape, 7))
    y = rng.integers(0 if loss.ignore_index is None else -1, 7, shape)
    y[0, 0] = 1
    y[y == -1] = loss.ignore_index or 0

    def gradient(loss, x) -> tuple[float, Any]:
        leaf = Tensor(x, requires_grad=True)
        with Tape() as tape:
            value = loss(leaf, y)
        tape.backward(value, 0.7)
        return value.item(), leaf.grad

    expected, g = gradient(loss.for_parts_of(y), logits)

    def work(comm):
        shard = Shard(-1, comm, bounds)
        return gradient(class_parallel_loss(loss.for_parts_of(y), shard), shard.local_part(logits))

    for rank, (value, part) in enumerate(run_ranks(len(bounds) - 1, work)):
        assert value == pytest.approx(expected, rel=1e-12)
        np.testing.assert_allclose(part, g[..., bounds[rank] : bounds[rank + 1]], atol=1e-13)


@pytest.mark.parametrize("name", LOSSES)
def test_a_split_table_trains_like_serial_by_any_loss(name):
    net = Net(symbols=7)
    build = net.build
    batches = net.batches

    class Labelled(Net):
        def batches(self, *sizes):
            for batch in (made := batches(*sizes)):
                if LOSSES[name].ignore_index != -1:
                    batch.y[batch.y == -1] = 0 if name == "ignored symbol" else 3
                    batch.y[:, 0] = 2
            return made

    net = Labelled(*net)
    plan = net.plan(vocabulary=True)
    for settings in ({}, {"split_tokens": True}):
        trains(net, 3, lambda c, s=settings: ModelParallel(c, plan, **s), loss=LOSSES[name], build=build)


def test_a_table_is_one_parameter_and_each_rank_holds_its_rows():
    net = Net(symbols=7)

    def work(comm):
        backend = ModelParallel(comm, net.plan(vocabulary=True))
        placed = backend.place(net.build(np.random.default_rng(comm.rank)))
        table, unembedding = placed.layers[0].weight, placed.layers[-1].weight  # pyright: ignore
        assert table is unembedding and table.data.base is None
        return len(table), backend.state.full_parameters(placed)["0.weight"]

    whole = net.build(np.random.default_rng(0)).named_parameters()["0.weight"].data
    results = run_ranks(3, work)
    assert [n for n, _ in results] == [2, 2, 3]
    for _, table in results:
        np.testing.assert_array_equal(table, whole)


def test_a_table_that_one_end_alone_splits_is_refused():
    for plan in ({"0": "vocabulary"}, {"4": "vocabulary"}):
        with pytest.raises(ValueError, match='shares a parameter .* or split all by "vocabulary"'):
            run_ranks(2, lambda c, p=plan: ModelParallel(c, p).place(Net().build(np.random.default_rng(0))))
    free = nn.Sequential(nn.TokenEmbedding(9, 4, 6, rng=0), nn.Linear(4, 9, rng=0))
    run_ranks(2, lambda comm: ModelParallel(comm, {"0": "vocabulary"}).place(free))


def test_scores_stand_at_the_end():
    embedding = nn.TokenEmbedding(9, 4, 6, rng=0)
    model = nn.Sequential(embedding, nn.Unembedding(embedding), nn.Tanh())
    with pytest.raises(ValueError, match="only the last layer .* leave it out of the plan"):
        run_ranks(2, lambda c: ModelParallel(c, {"0": "vocabulary", "1": "vocabulary"}).place(model))


def test_rows_longer_than_the_places_are_refused():
    net = Net(tokens=3)

    def work(comm):
        placed = ModelParallel(comm, net.plan(vocabulary=True)).place(net.build(np.random.default_rng(0)))
        placed(np.zeros((1, 4), int))

    with pytest.raises(ValueError, match="the model has 3 positions, the text 4 symbols"):
        run_ranks(2, work)


@pytest.mark.parametrize("ranks", [2, 3])
def test_a_loss_of_split_scores_sends_three_numbers_a_token(ranks):
    n, y = 12, np.zeros((3, 4), int)

    def work(comm):
        traced = Traced(comm)
        shard = Shard(-1, traced, (0, *range(8 - ranks, 8)))
        loss = class_parallel_loss(CrossEntropyLoss(class_axis=-1, ignore_index=-1).for_parts_of(y), shard)
        with Tape() as tape:
            value = loss(Tensor(np.ones((3, 4, shard.local_size)), requires_grad=True), y)
        tape.backward(value, 1.0)
        return traced.record.ledger.sent().bytes // 8

    assert sum(run_ranks(ranks, work)) == 3 * ranks * (ranks - 1) * n  # each to each, as threads do it
