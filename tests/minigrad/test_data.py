"""Laws of minigrad/data.py: an epoch visits every sample once, and shares of a batch are the batch;
each law fails on a seeded bug.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis.strategies import integers

from minigrad.data import Batch, Dataset, minibatches, shares

sizes, seeds = integers(1, 40), integers(0, 2**32)


def numbered(n: int) -> Batch:
    """Samples that carry their own number, and targets that are ten times it."""
    return Batch(np.arange(n, dtype=np.float32)[:, np.newaxis], 10 * np.arange(n))


def visited(epoch) -> list[int]:
    """The numbers of the samples in the order visited."""
    return [int(x) for batch in epoch for x in batch.x[:, 0]]


# Laws: each takes the thing under test.


def shares_partition(shares, n: int, parts: int) -> None:
    """The slices follow each other from 0 to n, and their sizes differ by at most one."""
    slices = shares(n, parts)
    assert len(slices) == parts
    assert [i for s in slices for i in range(s.start, s.stop)] == list(range(n))
    lengths = [s.stop - s.start for s in slices]
    assert min(lengths) >= 0 and max(lengths) - min(lengths) <= 1


def shards_are_the_batch(shares, n: int, ranks: int) -> None:
    """The ranks' shares of a batch, put together in rank order, are the batch."""
    batch = numbered(n)
    parts = [batch[s] for s in shares(n, ranks)]
    assert sum(len(part) for part in parts) == n
    np.testing.assert_array_equal(np.concatenate([part.x for part in parts]), batch.x)
    np.testing.assert_array_equal(np.concatenate([part.y for part in parts]), batch.y)


def epoch_visits_each_sample_once(minibatches, n: int, size: int, seed: int, epoch: int) -> None:
    """All batches are full but the last; together they are a permutation; targets stay with their samples."""
    batches = list(minibatches(numbered(n), size, seed=seed, epoch=epoch))
    assert sorted(visited(batches)) == list(range(n))
    assert [len(b) for b in batches] == [min(size, n - start) for start in range(0, n, size)]
    for b in batches:
        np.testing.assert_array_equal(b.y, 10 * b.x[:, 0])


def order_depends_on_seed_and_epoch_alone(minibatches, seed: int, epoch: int) -> None:
    """Equal (seed, epoch) have equal orders for any batch size; another seed or epoch has another order."""
    data = numbered(100)  # two of 100! orders are the same by chance never

    def order(seed, epoch, size=7):
        return visited(minibatches(data, size, seed=seed, epoch=epoch))

    first = order(seed, epoch)
    assert order(seed, epoch) == first
    assert order(seed, epoch, size=30) == first
    assert order(seed, epoch + 1) != first
    assert order(seed + 1, epoch) != first
    assert order(seed + 1, epoch) != order(seed, epoch + 1)


@given(n=integers(0, 200), parts=sizes)
def test_shares_partition(n, parts):
    shares_partition(shares, n, parts)


@given(n=integers(0, 200), ranks=sizes)
def test_shards_are_the_batch(n, ranks):
    shards_are_the_batch(shares, n, ranks)


@given(n=integers(0, 200), size=sizes, seed=seeds, epoch=integers(0, 1000))
def test_epoch_visits_each_sample_once(n, size, seed, epoch):
    epoch_visits_each_sample_once(minibatches, n, size, seed, epoch)


@given(seed=seeds, epoch=integers(0, 1000))
def test_order_depends_on_seed_and_epoch_alone(seed, epoch):
    order_depends_on_seed_and_epoch_alone(minibatches, seed, epoch)


# Seeded bugs: broken copies that the laws must catch.


def last_share_takes_the_rest(n, parts):
    cuts = [i * (n // parts) for i in range(parts)] + [n]
    return [slice(a, b) for a, b in zip(cuts, cuts[1:], strict=False)]


def rest_is_forgotten(n, parts):
    return [slice(i * (n // parts), (i + 1) * (n // parts)) for i in range(parts)]


def boundaries_overlap(n, parts):
    return [slice(s.start, min(s.stop + 1, n)) for s in shares(n, parts)]


def order_reversed(n, parts):
    return shares(n, parts)[::-1]


def broken_minibatches(draw, cut):
    """Minibatches with another way to draw the order or to cut it."""

    def minibatches(data, size, *, seed, epoch):
        order = draw(len(data), seed, epoch)
        return (data[rows] for rows in cut(order, size))

    return minibatches


def cut(order, size):
    return [order[start : start + size] for start in range(0, len(order), size)]


def permuted(n, seed, epoch):
    return np.random.default_rng([seed, epoch]).permutation(n)


def targets_left_behind(data, size, *, seed, epoch):
    order = permuted(len(data), seed, epoch)
    return (Batch(data.x[rows], data.y[np.sort(rows)]) for rows in cut(order, size))


stream = np.random.default_rng(0)
with_replacement = broken_minibatches(
    lambda n, seed, epoch: np.random.default_rng(seed).integers(n, size=n), cut
)
last_batch_dropped = broken_minibatches(permuted, lambda order, size: cut(order, size)[: len(order) // size])
same_every_epoch = broken_minibatches(lambda n, seed, epoch: permuted(n, seed, 0), cut)
seed_plus_epoch = broken_minibatches(lambda n, seed, epoch: permuted(n, seed + epoch, 0), cut)
shared_stream = broken_minibatches(lambda n, seed, epoch: stream.permutation(n), cut)


@pytest.mark.parametrize(
    "bug", [last_share_takes_the_rest, rest_is_forgotten, boundaries_overlap, order_reversed]
)
def test_a_bug_in_shares_is_caught(bug):
    with pytest.raises(AssertionError):
        shares_partition(bug, 11, 4)


@pytest.mark.parametrize("bug", [rest_is_forgotten, boundaries_overlap, order_reversed])
def test_a_bug_in_shards_is_caught(bug):
    with pytest.raises(AssertionError):
        shards_are_the_batch(bug, 11, 4)


@pytest.mark.parametrize("bug", [with_replacement, last_batch_dropped, targets_left_behind])
def test_a_bug_in_an_epoch_is_caught(bug):
    with pytest.raises(AssertionError):
        epoch_visits_each_sample_once(bug, 50, 8, 1, 2)


@pytest.mark.parametrize("bug", [same_every_epoch, seed_plus_epoch, shared_stream])
def test_a_bug_in_the_order_is_caught(bug):
    with pytest.raises(AssertionError):
        order_depends_on_seed_and_epoch_alone(bug, 1, 2)


# Errors, as a user reads them.


@pytest.mark.parametrize("size", [0, -3])
def test_a_batch_size_below_one_is_refused_at_the_call(size):
    with pytest.raises(ValueError, match=rf"^the batch size must be at least 1, got {size}$"):
        minibatches(numbered(4), size, seed=0, epoch=0)


@pytest.mark.parametrize("parts", [0, -1])
def test_shares_among_nobody_are_refused(parts):
    with pytest.raises(ValueError, match=rf"^samples can be shared among at least 1 part, got {parts}$"):
        shares(4, parts)


def test_as_many_targets_as_samples():
    with pytest.raises(ValueError, match=r"^a batch needs as many targets as samples, got 3 x and 2 y$"):
        Batch(np.zeros((3, 1)), np.zeros(2))


def test_a_batch_on_the_host_is_itself():
    batch = numbered(3)
    same = batch.to("numpy")
    assert same.x is batch.x and same.y is batch.y
    assert len(Dataset("three", batch, batch[:2]).test) == 2


def test_floating_samples_of_a_batch_are_converted_and_nothing_else_is():
    batch = Batch(np.ones((3, 2)), np.arange(3.0))[:2].to(dtype=np.float32)
    assert (batch.x.dtype, batch.y.dtype, batch.is_part) == (np.float32, np.float64, True)
    assert Batch(np.ones((3, 2), int), np.arange(3)).to(dtype=np.float32).x.dtype == np.int64


def test_an_unknown_device_is_refused():
    with pytest.raises(ValueError, match=r"^unknown device 'tpu'; choose one of numpy, cupy$"):
        numbered(3).to("tpu")


@given(n=integers(1, 30), size=sizes, seed=seeds)
def test_a_batch_is_taken_apart_into_samples_and_targets(n, size, seed):
    pairs = [(x, y) for x, y in minibatches(numbered(n), size, seed=seed, epoch=0)]
    batches = list(minibatches(numbered(n), size, seed=seed, epoch=0))
    for (x, y), batch in zip(pairs, batches, strict=True):
        assert np.array_equal(x, batch.x) and np.array_equal(y, batch.y)
        assert np.array_equal(y, 10 * x[:, 0])


@pytest.mark.parametrize("row", [3, -1, np.int64(2), True, (0, 1)])
def test_one_sample_is_no_batch(row):
    with pytest.raises(
        TypeError, match=r"a slice or by an array of rows, got .*batch\[\[3\]\].*batch.x\[3\]"
    ):
        numbered(5)[row]  # pyright: ignore
    assert visited([numbered(5)[[3]], numbered(5)[-1:], numbered(5)[np.arange(5) > 3]]) == [3, 4, 4]
