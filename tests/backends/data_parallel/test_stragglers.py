"""Laws of backends/data_parallel/proportional.py: the measured wait is the clock's, and shares in
proportion to speed still train like serial.
"""

from fractions import Fraction

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import assume, given
from minigrad_course.machines.virtual_cluster import VirtualCluster

from backends.comm import run_ranks
from backends.comm.collectives.link import Link
from backends.data_parallel.proportional import ProportionalDataParallel, proportional_shares
from backends.laws import trains_like_serial
from minigrad import ops, optim
from minigrad.data import shares
from minigrad.tape import current_tape
from tests.backends.data_parallel.trained_apart import Plain, batches_of, built, step
from tests.bugs.mutant import mutant

STRAGGLERS = "backends.data_parallel.proportional"
FREE = Link(0.0)  # messages take no time, so that a step takes what computing takes
SECOND = 2.0**-10  # of computing for one sample: sums of it are exact
SLOWNESS = st.lists(st.sampled_from([1.0, 1.5, 2.0, 4.0, 8.0]), min_size=2, max_size=6)

# Shares


def costly(comm):
    """A loss that lets the virtual clock go on in proportion to the samples."""

    def loss(out, y):
        if current_tape.get() is not None:  # in training, and not where it is checked
            comm.compute(len(y) * SECOND)
        return ops.cross_entropy(out, y)

    return loss


def apportions(split, n, speeds):
    """Assert that the slices are all samples in order, each size within 1 of the exact quota, fairly so."""
    shares = split(n, speeds)
    assert shares[0].start == 0 and shares[-1].stop == n and len(shares) == len(speeds)
    assert all(a.stop == b.start for a, b in zip(shares, shares[1:], strict=False))
    sizes = [s.stop - s.start for s in shares]
    exact = [Fraction(s) for s in speeds]
    quotas = [n * s / sum(exact) for s in exact]
    assert all(abs(size - quota) < 1 + Fraction(1, 10**6) for size, quota in zip(sizes, quotas, strict=True))
    for a, i in zip(quotas, sizes, strict=True):
        for b, j in zip(quotas, sizes, strict=True):
            # Whoever got one more than the quota's whole part had no smaller remainder than who did not.
            if i > a and j < b:
                assert a - (i - 1) >= b - j - Fraction(1, 10**6)


SPEEDS = st.lists(st.floats(0, 1e300) | st.integers(0, 9).map(float), min_size=1, max_size=7).filter(any)


@given(n=st.integers(0, 500), speeds=SPEEDS)
def test_shares_are_proportional_to_speeds(n, speeds):
    apportions(proportional_shares, n, speeds)


@given(n=st.integers(0, 500), parts=st.integers(1, 9), speed=st.floats(1e-300, 1e300))
def test_equal_speeds_give_even_shares(n, parts, speed):
    lengths = sorted(s.stop - s.start for s in proportional_shares(n, [speed] * parts))
    assert lengths == sorted(s.stop - s.start for s in shares(n, parts))


@pytest.mark.parametrize(
    "change",
    [
        ("np.floor(quotas)", "np.ceil(quotas)"),
        ("np.argsort(sizes - quotas,", "np.argsort(quotas - sizes,"),
        ('sizes[np.argsort(sizes - quotas, kind="stable")[:rest]] += 1', "sizes[-1] += rest"),
        ("quotas *= n / quotas.sum()", "quotas *= n / len(quotas)"),
    ],
    ids=["rounds up", "smallest remainder", "the last takes the rest", "not normalised"],
)
def test_the_law_of_shares_catches(change):
    split = mutant(STRAGGLERS, change).proportional_shares
    with pytest.raises((AssertionError, IndexError)):
        apportions(split, 31, [1.0, 2.0, 3.7, 0.5, 1.9])


@pytest.mark.parametrize("speeds", [[], [0.0, 0.0], [1.0, -1.0], [1.0, float("nan")], [float("inf")]])
def test_speeds_that_mean_nothing_are_refused(speeds):
    with pytest.raises(ValueError, match="speeds must be finite, at least 0 and not all 0, got"):
        proportional_shares(5, speeds)


# Proportional shards


def any_speeds(seed, cls=ProportionalDataParallel):
    """A strategy whose ranks seem to change their speed at random, some of them to 0."""

    class Random(cls):
        def speed(self):
            draw = np.random.default_rng([seed, self.rank, self.steps])
            return float(draw.integers(0, 4) * draw.random())

    return lambda comm: Random(comm, every=1)


@given(
    ranks=st.integers(1, 6),
    sizes=st.lists(st.integers(1, 13), min_size=2, max_size=5),
    seed=st.integers(0, 99),
)
def test_trains_like_serial_whatever_the_speeds(ranks, sizes, seed):
    def work(comm):
        trains_like_serial(any_speeds(seed), comm, Plain, ops.cross_entropy, batches_of(sizes))

    run_ranks(ranks, work)


@given(ranks=st.integers(1, 4), micro_batches=st.integers(1, 3))
def test_trains_like_serial_with_measured_speeds(ranks, micro_batches):
    def work(comm):
        strategy = lambda c: ProportionalDataParallel(c, every=2, micro_batches=micro_batches)  # noqa: E731
        trains_like_serial(strategy, comm, Plain, ops.cross_entropy, batches_of([13, 2, 7, 9, 11]))

    run_ranks(ranks, work)


class EvenWeights(ProportionalDataParallel):
    """Weighs every rank alike, though the shares are uneven on purpose."""

    def loss_weight(self, mine, batch):
        return 1 / self.size


class OwnSpeedsOnly(ProportionalDataParallel):
    """Each rank shares by what it knows of itself: the shards overlap or leave samples out."""

    def finish(self, model, loss):
        loss = super().finish(model, loss)
        self.speeds = [s if r == self.rank else 1.0 for r, s in enumerate(self.speeds)]
        return loss


@pytest.mark.parametrize("bug", [EvenWeights, OwnSpeedsOnly])
def test_serial_catches(bug):
    def work(comm):
        trains_like_serial(any_speeds(1, bug), comm, Plain, ops.cross_entropy, batches_of([12, 12, 12]))

    with pytest.raises(AssertionError, match="of its scale on rank"):
        run_ranks(3, work)


def step_times(slowness, n, steps, every=2, strategy=ProportionalDataParallel):
    """Seconds of each step on a cluster where messages cost nothing."""

    def work(comm):
        backend = strategy(comm, every=every)
        model = backend.place(built(Plain))
        optimizer = optim.SGD(model.parameters(), 0.1)
        times = [comm.time()]
        for batch in batches_of([n] * steps):
            optimizer.zero_grad()
            backend.step(model, batch, costly(comm))
            backend.update(model, optimizer)
            times.append(comm.time())
        return np.diff(times).tolist()

    times = VirtualCluster(len(slowness), FREE, slowness=dict(enumerate(slowness))).run(work)
    return np.max(times, axis=0).tolist()


def test_a_step_takes_as_long_as_the_balanced_shares():
    """Speeds 1, 1/2 and 1/4 share 28 samples as 16, 8 and 4, of 16 seconds each; even shares take 36."""
    assert step_times([1.0, 2.0, 4.0], 28, 5) == [36 * SECOND] * 2 + [16 * SECOND] * 3


@given(slowness=SLOWNESS, n=st.integers(1, 60))
def test_a_step_falls_to_the_optimum_and_one_sample(slowness, n):
    """No shares take less than n / (sum of speeds); largest remainders are off by less than a sample."""
    n = -(-n // len(slowness)) * len(slowness)
    best = n / sum(1 / s for s in slowness)
    assume(best >= max(slowness))  # then every rank has a sample, and is measured
    first, *others = step_times(slowness, n, 4, every=1)
    assert first == n // len(slowness) * max(slowness) * SECOND
    assert all(best * (1 - 1e-12) <= time / SECOND <= best + max(slowness) for time in others)


def test_a_rank_that_got_nothing_is_measured_again():
    """While it is a hundred times slower it gets no samples; then it recovers, and gets its share."""
    slow = [1.0, 1.0, 100.0]

    def work(comm):
        backend = ProportionalDataParallel(comm, every=1)
        model = backend.place(built(Plain))
        sizes = []
        for t, batch in enumerate(batches_of([12] * 30)):
            factor = 0.01 if t > 5 and comm.rank == 2 else 1.0
            sizes.append(len(backend.shard(batch)))

            def loss(out, y, factor=factor):
                if current_tape.get() is not None:
                    comm.compute(len(y) * factor)
                return ops.cross_entropy(out, y)

            backend.step(model, batch, loss)
        return sizes

    shares = VirtualCluster(3, FREE, slowness=dict(enumerate(slow))).run(work)
    assert [sizes[1] for sizes in shares] == [6, 6, 0]
    assert [sizes[-1] for sizes in shares] == [4, 4, 4]


def test_all_ranks_must_exchange_equally_often():
    with pytest.raises(ValueError, match="rank 0 has every = 1, rank 1 has 2"):
        run_ranks(2, lambda comm: ProportionalDataParallel(comm, every=1 + comm.rank).place(built(Plain)))


def test_steps_alone_are_enough():
    """The constructor's defaults train."""

    def work(comm):
        backend = ProportionalDataParallel(comm)
        model = backend.place(built(Plain))
        return [step(backend, model, optim.SGD(model.parameters(), 0.1), b) for b in batches_of([5] * 12)]

    losses = run_ranks(2, work)
    assert losses[0] == losses[1]
