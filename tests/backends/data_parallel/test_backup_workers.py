"""Laws of backends/data_parallel/backup_workers.py: every update is the serial one on its contributors'
samples, however late others are.
"""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from minigrad_course.machines.virtual_cluster import VirtualCluster

from backends.comm import run_ranks
from backends.comm.collectives.link import Link
from backends.comm.trace import Traced
from backends.data_parallel.backup_workers import BackupWorkers
from backends.laws import trains_like_serial
from minigrad import ops, optim
from tests.backends.data_parallel.backup_worker_laws import clipped, is_serial_on_its_contributors, training
from tests.backends.data_parallel.trained_apart import OPTIMIZERS, Net, Plain, batches_of, built, close, step
from tests.bugs.mutant import mutant

SIZES = st.lists(st.integers(1, 11), min_size=1, max_size=6)


# b = 0


@given(ranks=st.integers(1, 6), sizes=SIZES, micro_batches=st.integers(1, 3))
def test_without_backups_it_trains_like_serial(ranks, sizes, micro_batches):
    def work(comm):
        strategy = lambda c: BackupWorkers(c, micro_batches=micro_batches)  # noqa: E731
        trains_like_serial(strategy, comm, Plain, ops.cross_entropy, batches_of(sizes), optimizer=clipped)

    run_ranks(ranks, work)


def test_without_backups_where_a_send_waits_for_its_receiver():
    def work(comm):
        trains_like_serial(BackupWorkers, comm, Plain, ops.cross_entropy, batches_of([7, 2, 5]))

    run_ranks(4, work, rendezvous=True)


def test_single_precision():
    def work(comm):
        batches = batches_of([7, 2, 5], np.float32)
        trains_like_serial(BackupWorkers, comm, Plain, ops.cross_entropy, batches, dtype=np.float32)

    run_ranks(4, work)


def test_it_claims_to_be_serial_only_without_backups():
    assert run_ranks(3, lambda c: [BackupWorkers(c, backups=b).traits.equals_serial for b in (0, 1)])[0] == [
        True,
        False,
    ]


# b > 0


def cluster(ranks, seed):
    draw = np.random.default_rng(seed)
    slowness = {rank: float(draw.choice([1, 1, 2, 5, 20])) for rank in range(ranks)}
    return VirtualCluster(ranks, Link(0.01, 1e5), slowness=slowness, jitter=0.5, seed=seed)


worlds = st.integers(3, 6).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n - 2)))


@pytest.mark.parametrize("make", [OPTIMIZERS["adam"], clipped], ids=["adam", "clipped momentum"])
@given(world=worlds, sizes=SIZES, seed=st.integers(0, 999), drains=st.sets(st.integers(0, 5), max_size=2))
def test_every_update_is_serial_on_its_contributors(make, world, sizes, seed, drains):
    ranks, backups = world
    work = training(sizes, make, backups=backups, drains=drains)
    for runs in (cluster(ranks, seed).run(work), run_ranks(ranks, work, seed=seed)):
        is_serial_on_its_contributors(runs, sizes, make, backups)


@given(world=worlds, sizes=SIZES, seed=st.integers(0, 999))
def test_the_same_cluster_gives_the_same_training(world, sizes, seed):
    ranks, backups = world
    work = training(sizes, clipped, backups=backups)
    one, other = (cluster(ranks, seed).run(work) for _ in range(2))
    assert [run.updates for run in one] == [run.updates for run in other]
    close(one[0].state, other[0].state, bound=0)


def test_running_statistics_end_equal_on_all_ranks():
    runs = cluster(5, 3).run(training([11, 9, 10, 12], clipped, backups=2, build=Net))
    assert any(u.dropped for u in runs[0].updates)
    for run in runs:
        close(run.state, runs[0].state, bound=0)


def test_a_worker_ten_times_slower_costs_nothing_and_joins_at_the_newest_version():
    """Ranks 1 and 2 take a second, rank 3 ten: its first gradient comes at version 10, where it goes on."""
    sizes = [9] * 12
    world = VirtualCluster(4, Link(0.0), slowness={3: 10.5})
    runs = world.run(training(sizes, clipped))
    is_serial_on_its_contributors(runs, sizes, clipped, 1)
    assert [u.contributors for u in runs[0].updates] == [[1, 2]] * 12
    assert {u.version: u.dropped for u in runs[0].updates if u.dropped} == {0: [3], 10: [3]}
    assert world.clocks == [21.0, 12.0, 12.0, 21.0]  # the collector waits at the end, not before
    world.run(training(sizes, clipped, backups=0))
    assert world.seconds == 12 * 10.5


BUGS = {
    "applies a late gradient": [
        (
            "                self.refuse(worker, push)\n",
            "                self.refuse(worker, push)\n                pushes[worker + 100] = push\n",
        ),
        ("for worker in [*pushes, *idle]:", "for worker in [w for w in [*pushes, *idle] if w < 100]:"),
        ("Update(self.version, list(pushes))", "Update(self.version, [w % 100 for w in pushes])"),
    ],
    "divides by all workers": [
        ("mean /= self.figures(mean)[1]", "mean /= self.figures(mean)[1] * len(self.workers) / len(pushes)")
    ],
    "a plain mean of uneven shares": [
        ("mean /= self.figures(mean)[1]", "mean[: -len(self.summary)] /= len(pushes)")
    ],
    "takes the same worker twice": [("for push in others:", "for push in [*others, *others[:1]]:")],
    "waits for all": [("len(self.workers) - backups", "len(self.workers)")],
    "takes one too few": [
        ("while len(pushes) < self.quorum:", "while len(pushes) < max(self.quorum - 1, 1):")
    ],
    "clips what is still to be sent": [("mean.copy() if self.version in self.means else mean", "mean")],
    "counts what was dropped as used": [("dropped.append(worker)", "contributors.append(worker)")],
    "waits for who has no samples": [("min(self.needed, len(batch))", "self.needed")],
    "tells only the newest mean": [("array_module(news[0]).stack(news)", "news[-1][None]")],
    "leaves the late ones alone at the end": [("any(count < self.version for", "any(False for")],
}


@pytest.mark.parametrize("bug", BUGS)
def test_the_law_catches(bug):
    module, sizes = mutant("backends.data_parallel.backup_workers", *BUGS[bug]), [9, 10, 11, 1, 8, 7]
    world = VirtualCluster(5, Link(0.01, 1e5), slowness={3: 1.5, 4: 3.2})
    with pytest.raises((AssertionError, RuntimeError, IndexError)):  # also a deadlock, or messages left over
        is_serial_on_its_contributors(world.run(training(sizes, clipped, module, 2)), sizes, clipped, 2)


def test_the_law_holds_for_that_world():
    sizes = [9, 10, 11, 1, 8, 7]
    world = VirtualCluster(5, Link(0.01, 1e5), slowness={3: 1.5, 4: 3.2})
    is_serial_on_its_contributors(world.run(training(sizes, clipped, backups=2)), sizes, clipped, 2)


@given(ranks=st.integers(2, 6), steps=st.integers(1, 4))
def test_one_message_each_way_per_worker_and_step(ranks, steps):
    def work(comm):
        traced = Traced(comm)
        backend = BackupWorkers(traced)
        model = backend.place(built(Net))
        trained = [p for p in model.parameters() if p.requires_grad]
        nbytes = 8 * (4 + len(trained) + 2 + 10 + sum(p.size for p in trained))
        before, heard = traced.record.ledger.sent(), traced.record.ledger.received()
        for batch in batches_of([7] * steps):
            step(backend, model, optim.SGD(model.parameters(), 0.1), batch)
        backend.finalize(model)
        count = steps * (ranks - 1 if comm.rank == 0 else 1)
        for start, now in ((before, traced.record.ledger.sent()), (heard, traced.record.ledger.received())):
            assert (now.messages - start.messages, now.bytes - start.bytes) == (count, count * nbytes)
        assert not backend.means

    run_ranks(ranks, work)


# Mistakes


@pytest.mark.parametrize("backups", [-1, 3, 7])
def test_backups_must_leave_a_worker(backups):
    message = rf"of 3 workers on 4 ranks \(rank 0 only collects\), 0 to 2 can be backups, got {backups}"
    with pytest.raises(ValueError, match=message):
        run_ranks(4, lambda comm: BackupWorkers(comm, backups=backups))


def test_all_ranks_must_agree_on_the_backups():
    with pytest.raises(ValueError, match="rank 0 has backups = 0, rank 1 has 1"):
        run_ranks(3, lambda comm: BackupWorkers(comm, backups=comm.rank % 2).place(built(Plain)))
