"""Laws of backends/data_parallel/averaging.py: what averaging equals, and what it costs, on
every rank and for any shares.
"""

import math
from copy import deepcopy
from functools import partial

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from backends.comm import Communicator, run_ranks
from backends.comm.collectives import naive_allreduce
from backends.comm.trace import Traced
from backends.consistency import load_mean, running_statistics, weighted
from backends.data_parallel.averaging import DiLoCo, ElasticAveraging, LocalSGD, ParallelSGD
from backends.laws import integers, trains_like_serial
from minigrad import ops, optim
from minigrad.serial import Serial
from tests.backends.data_parallel.averaging_laws import equals_the_textbook
from tests.backends.data_parallel.trained_apart import (
    OPTIMIZERS,
    Net,
    Plain,
    batches_of,
    built,
    close,
    states,
    step,
)

STRATEGIES = [
    ParallelSGD,
    lambda comm: LocalSGD(comm, period=2),
    lambda comm: DiLoCo(comm, period=2),
    lambda comm: ElasticAveraging(comm, period=2),
]
SIZES = st.lists(st.integers(1, 11), min_size=1, max_size=5)


# Local SGD, period 1


def period_one_is_synchronous_sgd(strategy, comm, sizes, make):
    """Assert that after every update all parameters and momenta are those of the serial run."""
    serial, reference = Serial(), built(Plain)
    backend = strategy(comm)
    model = backend.place(built(Plain, comm.rank))
    optimizer, method = make(model.parameters()), make(reference.parameters())
    for batch in batches_of(sizes):
        step(serial, reference, method, batch)
        step(backend, model, optimizer, batch)
        close(model.state_dict(), reference.state_dict())
        expected, actual = states(method), states(optimizer)
        close({name: actual[name] for name in expected}, expected)
    backend.finalize(model)
    close(model.state_dict(), reference.state_dict())


@pytest.mark.parametrize("name", ["sgd", "momentum", "nesterov", "heavy ball"])
@given(ranks=st.integers(1, 5), sizes=SIZES)
def test_averaging_after_every_update_is_synchronous_sgd(name, ranks, sizes):
    def work(comm):
        period_one_is_synchronous_sgd(lambda c: LocalSGD(c, period=1), comm, sizes, OPTIMIZERS[name])

    run_ranks(ranks, work)


def test_plain_sgd_needs_no_momentum_averaged():
    def work(comm):
        strategy = lambda c: LocalSGD(c, period=1, average_momentum=False)  # noqa: E731
        period_one_is_synchronous_sgd(strategy, comm, [7, 2, 5], OPTIMIZERS["sgd"])

    run_ranks(3, work)


def test_momentum_that_is_not_averaged_makes_another_method():
    def work(comm):
        strategy = lambda c: LocalSGD(c, period=1, average_momentum=False)  # noqa: E731
        period_one_is_synchronous_sgd(strategy, comm, [7, 7, 7], OPTIMIZERS["momentum"])

    with pytest.raises(AssertionError):
        run_ranks(3, work)


# Any period, against the loop of the textbook: p models one after the other on one machine.


@pytest.mark.parametrize("name", ["momentum", "adam", "groups"])
@given(ranks=st.integers(1, 5), sizes=SIZES, period=st.integers(1, 3))
def test_local_sgd_is_the_loop_of_the_textbook(name, ranks, sizes, period):
    def work(comm):
        equals_the_textbook(lambda c: LocalSGD(c, period=period), comm, sizes, OPTIMIZERS[name], period)

    run_ranks(ranks, work)


@given(ranks=st.integers(1, 5), sizes=SIZES)
def test_parallel_sgd_averages_once(ranks, sizes):
    run_ranks(ranks, lambda c: equals_the_textbook(ParallelSGD, c, sizes, OPTIMIZERS["nesterov"], None))


# Seeded bugs


class Sums(LocalSGD):
    """The sum of the models instead of their mean."""

    def average(self, arrays, model):
        super().average(arrays, model)
        for a in arrays:
            a *= self.size


class SumsMomentum(LocalSGD):
    def average(self, arrays, model):
        super().average(arrays, model)
        assert self.optimizer is not None
        for state in self.optimizer.state:
            for v in state.values():
                v *= self.size


class PlainMean(LocalSGD):
    """Every rank counts alike, however few samples it saw."""

    def average(self, arrays, model):
        self.samples = 1
        super().average(arrays, model)


class CountsAgain(LocalSGD):
    """Samples of earlier periods count again."""

    def average(self, arrays, model):
        before = self.samples
        super().average(arrays, model)
        self.samples = before


class AveragesBeforeTheUpdate(LocalSGD):
    def update(self, model, optimizer):
        if self.updates + 1 == self.period:
            self.combine(model)
            optimizer.step(total=partial(self.state.total_squares, model, optimizer))
        else:
            super().update(model, optimizer)


class ForgetsTheLastUpdates(LocalSGD):
    def finalize(self, model):
        pass


class ForgetsTheStatistics(LocalSGD):
    def average(self, arrays, model):
        copies = [s.copy() for s in running_statistics(model)]
        super().average(arrays, model)
        for s, own in zip(running_statistics(model), copies, strict=True):
            s[...] = own


class OnlyRankZero(LocalSGD):
    """The others keep their own: invisible to a test that looks at rank 0."""

    def average(self, arrays, model):
        copies = [a.copy() for a in arrays]
        super().average(arrays, model)
        for a, own in zip(arrays, copies, strict=True):
            a[...] = a if self.rank == 0 else own


class KeepsItsOwnStart(LocalSGD):
    def place(self, model):
        own = model.state_dict()
        model = super().place(model)
        model.load_state_dict(own)
        return model


BUGS = [Sums, SumsMomentum, PlainMean, CountsAgain, AveragesBeforeTheUpdate, ForgetsTheLastUpdates]
BUGS += [ForgetsTheStatistics, OnlyRankZero, KeepsItsOwnStart]


@pytest.mark.parametrize("bug", BUGS)
def test_the_textbook_catches(bug):
    def work(comm):
        equals_the_textbook(lambda c: bug(c, period=2), comm, [7, 2, 4, 3, 5], OPTIMIZERS["momentum"], 2)

    with pytest.raises(AssertionError):
        run_ranks(3, work)


@pytest.mark.parametrize("bug", [Sums, SumsMomentum, PlainMean, OnlyRankZero, AveragesBeforeTheUpdate])
def test_the_law_of_period_one_catches(bug):
    def work(comm):
        period_one_is_synchronous_sgd(lambda c: bug(c, period=1), comm, [7, 2, 5], OPTIMIZERS["momentum"])

    with pytest.raises(AssertionError):
        run_ranks(3, work)


# One rank, starts, messages


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_one_rank_is_serial_to_the_last_bit(strategy, name):
    def work(comm):
        batches = batches_of([4, 7, 2])
        trains_like_serial(
            strategy, comm, Net, ops.cross_entropy, batches, optimizer=OPTIMIZERS[name], bound=0
        )

    run_ranks(1, work)


def test_they_do_not_claim_to_be_serial():
    assert not any(s.traits.equals_serial for s in (ParallelSGD, LocalSGD, DiLoCo, ElasticAveraging))


@pytest.mark.parametrize("strategy", [ParallelSGD, LocalSGD])
def test_each_may_keep_its_own_start(strategy):
    def work(comm):
        backend = strategy(comm, same_start=False)
        model = backend.place(built(Net, comm.rank))
        close(model.state_dict(), built(Net, comm.rank).state_dict(), bound=0)
        step(backend, model, optim.SGD(model.parameters(), 0.1), batches_of([7])[0])
        backend.finalize(model)
        return model.state_dict()

    first, *others = run_ranks(3, work)
    for other in others:
        close(other, first, bound=0)  # the frozen parameter too


@given(ranks=st.integers(2, 5), steps=st.integers(0, 7), period=st.integers(1, 4))
def test_so_many_messages(ranks, steps, period):
    """ceil(T / H) all-reduces: of 1 + parameters (+ momenta) + statistics, elastic of the parameters.

    In the second step an all-gather of one number from each rank compares the batches.
    """

    def work(comm):
        elements = sum(p.size for p in built(Net).parameters() if p.requires_grad)
        statistics, meetings = 10, math.ceil(steps / period)
        for strategy, expected in (
            (ParallelSGD, [1 + elements + statistics] * (steps > 0)),
            (
                lambda *a: LocalSGD(*a, period=period, average_momentum=False),
                [1 + elements + statistics] * meetings,
            ),
            (lambda *a: DiLoCo(*a, period=period), [1 + elements + statistics] * meetings),
            (lambda *a: LocalSGD(*a, period=period), [1 + 2 * elements + statistics] * meetings),
            (lambda *a: ElasticAveraging(*a, period=period), [elements] * meetings + [1 + statistics]),
        ):
            sizes = []
            traced = Traced(comm)

            def allreduce(c, x, sizes=sizes):
                sizes.append(x.size)
                return naive_allreduce(c, x)

            backend = strategy(traced, allreduce)
            model = backend.place(built(Net))
            optimizer = optim.SGD(model.parameters(), 0.1, momentum=0.9)
            before = traced.record.ledger.sent()
            for batch in batches_of([3] * steps):
                step(backend, model, optimizer, batch)
            backend.finalize(model)
            assert sizes == expected
            expected += [1] * (steps > 1)
            after = traced.record.ledger.sent()
            assert after.messages - before.messages == (ranks - 1) * len(expected)
            assert after.bytes - before.bytes == (ranks - 1) * 8 * sum(expected)

    run_ranks(ranks, work)


@given(ranks=st.integers(2, 4), micro_batches=st.integers(2, 4))
def test_micro_batches_change_nothing(ranks, micro_batches):
    def trained_with(k):
        def work(comm):
            backend = LocalSGD(comm, period=2, micro_batches=k)
            model = backend.place(built(Plain))
            optimizer = optim.SGD(model.parameters(), 0.1, momentum=0.9)
            for batch in batches_of([7, 3, 9]):
                step(backend, model, optimizer, batch)
            return model.state_dict()

        return run_ranks(ranks, work)

    for one, other in zip(trained_with(micro_batches), trained_with(1), strict=True):
        close(one, other)


def test_single_precision_stays_single_and_equal_on_all_ranks():
    def work(comm):
        backend = LocalSGD(comm, period=1)
        model = backend.place(built(Net).to(dtype=np.float32))
        optimizer = optim.Adam(model.parameters(), 0.01)
        for batch in batches_of([7, 2, 5], np.float32):
            step(backend, model, optimizer, batch)
        return model.state_dict() | states(optimizer)

    first, *others = run_ranks(3, work)
    assert {x.dtype for x in first.values() if x.dtype.kind == "f"} == {np.dtype("float32")}
    for other in others:
        close(other, first, bound=0)


@given(ranks=st.integers(1, 6), seed=st.integers(0, 99))
def test_a_mean_of_whole_numbers_is_exact(ranks, seed):
    def work(comm):
        weights = [int(w) for w in np.random.default_rng(seed).integers(0, 9, ranks)]
        arrays = [
            [integers(shape, seed + 10 * r, np.float64) for shape in ((2, 3), ())] for r in range(ranks)
        ]
        mine = deepcopy(arrays[comm.rank])
        load_mean(mine, naive_allreduce(comm, weighted(mine[0], mine, weights[comm.rank])))
        for i, actual in enumerate(mine):
            expected = arrays[comm.rank][i]
            if sum(weights):
                expected = sum(w * a[i] for w, a in zip(weights, arrays, strict=True)) / sum(weights)
            np.testing.assert_array_equal(actual, expected)

    run_ranks(ranks, work)


# Mistakes


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda comm: LocalSGD(comm, period=0), "period must be at least 1, got 0"),
        (
            lambda comm: ElasticAveraging(comm, alpha=1.5),
            "alpha is a share of the way to the center, 0 to 1, got 1.5",
        ),
        (lambda comm: ElasticAveraging(comm, alpha=math.nan), "0 to 1, got nan"),
        (lambda comm: DiLoCo(comm, outer_rate=-0.5), "outer_rate is a learning rate, 0 or more, got -0.5"),
        (lambda comm: DiLoCo(comm, outer_rate=math.nan), "0 or more, got nan"),
        (lambda comm: DiLoCo(comm, outer_momentum=1.0), "outer_momentum is at least 0 and below 1, got 1.0"),
        (
            lambda comm: DiLoCo(comm, outer_rate=0.5 + comm.rank).place(built(Net)),
            "rank 0 has outer_rate = 0.5, rank 1 has 1.5",
        ),
        (
            lambda comm: LocalSGD(comm, period=1 + comm.rank).place(built(Net)),
            "rank 0 has period = 1, rank 1 has 2; give all ranks the same settings",
        ),
        (
            lambda comm: ElasticAveraging(comm, alpha=0.5 * comm.rank).place(built(Net)),
            "rank 0 has alpha = 0.0, rank 1 has 0.5",
        ),
    ],
)
def test_mistakes_are_named(make, message):
    def work(comm: Communicator):
        make(comm)

    with pytest.raises(ValueError, match=message):
        run_ranks(2, work)
