"""Laws of backends/data_parallel/elastic.py, state_transfer.py and backends/comm/recoverable.py: whoever
dies and joins, and whenever, the ranks train like the serial machine.
"""

from functools import partial

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import example, given
from minigrad_course.machines.mortal_ranks import Killed, run_mortal_ranks

from backends.comm import run_ranks
from backends.comm.collectives import find_allreduce
from backends.comm.recoverable import RankDied, Revoked
from backends.data_parallel import Elastic
from backends.laws import trains_like_serial
from backends.stack import Stack
from minigrad import ops
from minigrad.serial import Serial
from tests.backends.data_parallel.elastic_laws import (
    STEPS,
    Faults,
    agrees,
    all_that_live_train_like_serial,
    elastic_run,
    every_sample_counts_once,
    gradients_add_up,
    is_data_parallel_on_the_ranks_of_each_step,
    links_are_measured_by_all_that_live,
)
from tests.backends.data_parallel.trained_apart import OPTIMIZERS, Net, Plain, batches_of
from tests.backends.lanes import thorough

pytestmark = pytest.mark.filterwarnings("ignore:step .* train")


@st.composite
def faults(draw, most=5):
    """Deaths at any communication of any step, also of ranks that wait and of those that recover; joins."""
    ranks = draw(st.integers(1, most))
    first = draw(st.integers(1, ranks))
    joins = draw(st.lists(st.integers(0, STEPS - 1), max_size=ranks - first))
    goals = [first + sum(join <= step for join in joins) for step in range(STEPS)]
    mortal = draw(st.lists(st.integers(0, ranks - 1), unique=True, max_size=ranks - 1))
    deaths = {rank: draw(st.integers(0, 40 + 12 * STEPS)) for rank in mortal}
    return Faults(ranks, deaths, goals, draw(st.integers(0, 1000)))


def unless_all_who_trained_died(law, *arguments, **settings):
    try:
        law(*arguments, **settings)
    except RuntimeError as error:
        if "every rank that held the model has died" not in str(error):
            raise


@given(faults(), st.sampled_from(sorted(OPTIMIZERS)), st.sampled_from(["naive", "ring", "tree", "doubling"]))
def test_all_that_live_train_like_the_serial_machine(faults, optimizer, algorithm):
    strategy = partial(Elastic, allreduce=find_allreduce(algorithm))
    unless_all_who_trained_died(all_that_live_train_like_serial, strategy, faults, optimizer=optimizer)


@given(faults())
def test_every_sample_of_a_batch_counts_once(faults):
    unless_all_who_trained_died(every_sample_counts_once, Elastic, faults)


@given(faults())
def test_it_has_the_bits_of_data_parallelism_on_the_ranks_of_each_step(faults):
    """With dropout and batch-norm: a step that is repeated draws and observes what the first attempt did."""
    unless_all_who_trained_died(is_data_parallel_on_the_ranks_of_each_step, Elastic, faults)


@given(faults(most=4))
def test_synchronized_batch_norm_is_the_whole_batchs(faults):
    strategy = partial(Elastic, batch_norm="synchronized")
    unless_all_who_trained_died(all_that_live_train_like_serial, strategy, faults, net=Net)


@given(st.integers(0, 40), st.integers(0, 2))
def test_gradients_of_steps_without_zero_grad_add_up(left, victim):
    gradients_add_up(Elastic, Faults(3, {victim: 30 + left}))


@pytest.mark.parametrize("left", range(0, 120, 7))
def test_where_ranks_are_not_interleaved_by_a_seed(left):
    all_that_live_train_like_serial(Elastic, Faults(4, {0: left, 2: left + 3}, [3], seed=None))


@example(0, 49)
@example(1, 25)
@given(st.integers(0, 2), st.integers(0, 80))
def test_a_rank_may_die_while_links_are_measured(victim, left):
    links_are_measured_by_all_that_live(Elastic, victim, left)


@pytest.mark.parametrize("first", [0, thorough(1), thorough(2)])
def test_each_communication_of_a_rank_may_be_its_last(first):
    noticed = 0
    for left in range(first, 150, 3):
        run = elastic_run(Elastic, Faults(3, {1: left}, [2]))
        assert {len(outcome.losses) for outcome in run.outcomes.values()} == {STEPS}
        noticed += any(outcome.deaths for outcome in run.outcomes.values())
    assert noticed > 16


@given(ranks=st.integers(1, 5), sizes=st.lists(st.integers(1, 11), min_size=1, max_size=4))
def test_without_faults_it_trains_like_serial(ranks, sizes):
    run_ranks(ranks, lambda c: trains_like_serial(Elastic, c, Plain, ops.cross_entropy, batches_of(sizes)))


def test_a_spare_joins_where_a_rank_dies_and_all_end_with_the_model():
    run = elastic_run(lambda comm, target: Elastic(comm, spares=2), Faults(4, {0: 60}))
    first, second, third = (run.outcomes[rank] for rank in (1, 2, 3))
    assert set(first.deaths) == {0} and set(first.teams) == set(range(STEPS))
    assert 0 < len(second.teams) < STEPS and not third.teams
    assert set(second.teams.values()) == {(1, 2)}
    for name, value in first.arrays.items():
        np.testing.assert_array_equal(third.arrays[name], value)


def test_where_all_that_trained_died_the_spares_say_so():
    with pytest.raises(RuntimeError, match="every rank that held the model has died"):
        elastic_run(lambda comm, target: Elastic(comm, spares=1), Faults(3, {0: 60, 1: 60}))


def test_a_death_is_told():
    with pytest.warns(UserWarning, match=r"step \d: rank 1 died; 2 ranks train on"):
        elastic_run(Elastic, Faults(3, {1: 60}))


def test_it_stands_alone():
    with pytest.raises(ValueError, match="takes its part of the model with it"):
        run_ranks(1, lambda comm: Stack(Elastic(comm), Serial()))


def test_a_spare_that_takes_a_step_is_refused():
    def work(comm):
        backend = Elastic(comm, spares=1)
        model = backend.place(Plain(np.random.default_rng(0)))
        with pytest.raises(RuntimeError, match="is a spare"):
            if comm.rank == 0:
                raise RuntimeError("is a spare")
            backend.step(model, batches_of([3])[0], ops.cross_entropy)

    run_ranks(2, work)


@pytest.mark.parametrize("spares", [-1, 3])
def test_some_rank_must_train(spares):
    with pytest.raises(ValueError, match="of 3 ranks 0 to 2 can be spares"):
        run_ranks(3, lambda comm: Elastic(comm, spares=spares))


# Recoverable communicators


def test_only_who_waits_for_a_dead_rank_learns_of_its_death_until_the_group_is_revoked():
    def work(comm):
        world = comm.recoverable()
        if world.rank == 3:
            world.agree(True)  # never returns
        if world.rank == 0:
            world.send(np.ones(1), 1)
            world.send(np.ones(1), 3)  # lost
            with pytest.raises(RankDied, match="rank 3 died"):
                world.recv(3)
        if world.rank == 1:
            assert world.recv(0) == 1
        if world.rank == 2:
            with pytest.raises(Revoked):
                world.recv(1)
        if world.rank == 1:
            world.revoke()
        assert not world.agree(True)
        world = world.shrink()
        assert world.members == [0, 1, 2] and world.agree(True) and not world.agree(world.rank != 1)
        return comm.rank

    assert run_mortal_ranks(4, work, {3: 0}) == [0, 1, 2, None]
    assert run_mortal_ranks(4, work, {3: 0}, seed=5) == [0, 1, 2, None]


@given(seed=st.integers(0, 10**6), left=st.integers(0, 12), other=st.integers(0, 12))
def test_an_agreement_is_the_same_on_all_that_live(seed, left, other):
    agrees(seed, left, other)


def test_where_the_rank_that_writes_the_report_dies_the_next_one_writes_it():
    written = []

    def work(comm):
        backend = Elastic(comm)
        backend.place(Plain(np.random.default_rng(0)))

        def write():
            if backend.declaration.writes_report(backend):
                if comm.rank == 0:
                    raise Killed
                written.append(comm.rank)

        backend.declaration.report(backend, write)

    run_mortal_ranks(3, work, {})
    assert written == [1]
