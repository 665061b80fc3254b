"""Laws of backends/comm/background.py and parts.py: what goes wrong in the background is
named, and on the virtual clock times are exact.
"""

import re
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from minigrad_course.machines.virtual_cluster import VirtualCluster

from backends.comm import run_ranks
from backends.comm.collectives import allreduce, ring_allreduce
from backends.comm.collectives.link import Link
from backends.comm.communicator import Wrapper
from backends.comm.mailboxes import Deadlock, RankFailed
from tests.backends.comm.conformance import PROMISES, shift

A, B = 2.0**-10, 2.0**10  # a latency and a bandwidth whose sums and quotients are exact in binary
X = np.ones(3)
WORLDS = {
    "threads": run_ranks,
    "rendezvous": lambda n, fn: run_ranks(n, fn, rendezvous=True),
    "turns": lambda n, fn: run_ranks(n, fn, seed=n),
    "virtual": lambda n, fn: VirtualCluster(n).run(fn),
}


# Seeded bugs: some promise catches each.


class BrokenBackground:
    """A background that passes everything on, but for what a subclass breaks."""

    def __init__(self, background, comm):
        self.background, self.comm = background, comm

    def start(self, job, what="", nbytes=0):
        return self.background.start(job, what, nbytes)

    def close(self):
        self.background.close()


class RunsAtOnce(BrokenBackground):
    """The rank itself does the job: nothing is hidden, and ranks that start later hold it up."""

    def start(self, job, what="", nbytes=0):
        result = job(self.comm)
        return lambda: result


class UsesTheRanksOwnMessages(BrokenBackground):
    def start(self, job, what="", nbytes=0):
        return self.background.start(lambda _: job(self.comm), what, nbytes)


class RunsTheNewestFirst(BrokenBackground):
    def start(self, job, what="", nbytes=0):
        finish = self.background.start(job, what, nbytes)
        with self.comm.world.lock:
            self.background.worker.jobs.rotate(1)
        return finish


class LosesErrors(BrokenBackground):
    def start(self, job, what="", nbytes=0):
        finish = self.background.start(job, what, nbytes)

        def finish_quietly():
            try:
                return finish()
            except ZeroDivisionError:
                return None

        return finish_quietly


class NeverCloses(BrokenBackground):
    def close(self):
        pass


@pytest.mark.parametrize(
    "bug", [RunsAtOnce, UsesTheRanksOwnMessages, RunsTheNewestFirst, LosesErrors, NeverCloses]
)
def test_some_promise_catches(bug):
    class Breaks(Wrapper):
        def background(self):
            return bug(self.comm.background(), self.comm)

    def program(comm, promise):
        comm = Breaks(comm)
        promise(comm)

    caught = []
    for promise in PROMISES:
        try:
            run_ranks(3, partial(program, promise=promise), seed=1)
        except (AssertionError, RuntimeError, ZeroDivisionError):
            caught.append(promise.__name__)
    assert caught


# What goes wrong is named


def one_rank_never_starts_its_job(comm):
    background = comm.background()
    if comm.rank != 1:
        background.start(lambda comm: ring_allreduce(comm, X), "allreduce", X.nbytes)()


def jobs_in_another_order(comm):
    background = comm.background()
    jobs = [lambda comm: comm.send(X, 1 - comm.rank, tag=1), lambda comm: comm.recv(1 - comm.rank, tag=1)]
    finishes = [background.start(job, "exchange") for job in jobs[:: 1 - 2 * comm.rank]]
    for finish in finishes:
        finish()


def a_job_waits_for_what_its_own_rank_sends_later(comm):
    finish = comm.background().start(lambda comm: comm.recv(1 - comm.rank, tag=2), "receive")
    comm.recv(1 - comm.rank, tag=2)
    finish()


def a_rank_returns_before_its_job_is_done(comm):
    background = comm.background()
    if comm.rank == 0:
        background.start(lambda comm: comm.recv(1, tag=4), "receive")


HERE = r"at test_background\.py:\d+"
DEADLOCKS = [  # program, ranks, what the picture says
    (
        one_rank_never_starts_its_job,
        3,
        [
            f"rank 0 waits for its background to finish the allreduce of 24 bytes {HERE}",
            "rank 1 has returned",
            rf"rank 2's background waits to receive from rank 1's background \(tag 31006\) {HERE}",
        ],
    ),
    (
        a_job_waits_for_what_its_own_rank_sends_later,
        2,
        [
            rf"rank 0 waits to receive from rank 1 \(tag 2\) {HERE}",
            rf"rank 1's background waits to receive from rank 0's background \(tag 2\) {HERE}",
            "circle: 0 -> 1 -> 0",
        ],
    ),
    (
        a_rank_returns_before_its_job_is_done,
        2,
        ["rank 0 has returned", r"rank 0's background waits to receive from rank 1's background \(tag 4\)"],
    ),
]


@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize(("program", "ranks", "lines"), DEADLOCKS, ids=lambda p: getattr(p, "__name__", ""))
@pytest.mark.timeout(60)
def test_a_deadlock_of_backgrounds_is_drawn(program, ranks, lines, seed):
    with pytest.raises(Deadlock) as error:
        run_ranks(ranks, program, seed=seed)
    for line in lines:
        assert re.search(rf"^  {line}", str(error.value), re.MULTILINE), (line, str(error.value))


@pytest.mark.timeout(60)
def test_only_a_waiting_receiver_lets_a_job_send():
    run_ranks(2, jobs_in_another_order)
    with pytest.raises(
        Deadlock, match="circle: rank 0's background -> rank 1's background -> rank 0's background"
    ):
        run_ranks(2, lambda comm: jobs_that_send_first(comm), rendezvous=True)


def jobs_that_send_first(comm):
    def job(comm):
        comm.send(X, 1 - comm.rank, tag=1)
        comm.recv(1 - comm.rank, tag=1)

    comm.background().start(job, "exchange")()


def test_an_idle_background_is_named_by_number_and_says_what_ended_it():
    def program(comm):
        first, second = comm.background(), comm.background()  # both held: one that is not is closed
        assert first is not second
        if comm.rank == 0:
            second.start(lambda _: 1 // 0, "division")
        second.start(lambda comm: shift(comm, X))
        comm.recv(1 - comm.rank)

    with pytest.raises(Deadlock) as error:
        run_ranks(2, program, seed=0)
    text = str(error.value)
    assert re.search(rf"  rank 0's background waits for work {HERE}", text), text
    assert re.search(rf"  rank 0's background 2 waits for work after ZeroDivisionError\(.*\) {HERE}", text), (
        text
    )
    assert "  rank 1's background 2 waits to receive from rank 0's background 2 (tag 0)" in text, text


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.timeout(60)
def test_an_idle_background_holds_nobody_up(world):
    def program(comm):
        background = comm.background()
        total = background.start(lambda comm: allreduce(comm, X))()
        comm.background()  # never used, never closed
        return shift(comm, total)[0]

    assert WORLDS[world](3, program) == [3.0, 3.0, 3.0]


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.timeout(60)
def test_the_error_of_one_ranks_job_is_the_one_that_is_seen(world):
    texts = []

    def job(comm):
        if comm.rank == 1:
            raise ZeroDivisionError("of rank 1")
        return ring_allreduce(comm, X)

    def program(comm):
        try:
            comm.background().start(job, "allreduce", X.nbytes)()
        except RankFailed as error:
            texts.append(str(error))
            raise

    with pytest.raises(ZeroDivisionError, match="of rank 1"):
        WORLDS[world](3, program)
    assert len(texts) == 2 and all("rank 1 failed" in text for text in texts)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.timeout(60)
def test_a_job_that_uses_the_communicator_of_its_rank_is_refused(world):
    with pytest.raises(RuntimeError, match=r"communicator of rank \d was used on another thread, at conf"):
        WORLDS[world](3, lambda comm: comm.background().start(lambda _: shift(comm, X))())


@pytest.mark.parametrize("world", WORLDS)
def test_a_job_that_is_never_finished_is_reported(world):
    words = (
        r"rank 0 never finished the sum of 24 bytes in the background that it started at test_background.py"
    )
    with pytest.raises(RuntimeError, match=words):
        WORLDS[world](2, lambda comm: comm.background().start(lambda comm: allreduce(comm, X), "sum", 24))


def test_sizes_that_differ_name_the_ranks():
    def program(comm):
        comm.background().start(lambda comm: allreduce(comm, np.ones(3 + comm.rank)))()

    with pytest.raises(ValueError, match=r"rank [01] sent float64\(\d,\) with tag 31001, rank [01] expected"):
        run_ranks(2, program)


def test_a_seed_gives_one_interleaving_of_ranks_and_backgrounds_and_another_seed_another():
    def order(seed):
        heard = []

        def job(comm, i):
            heard.append((comm.rank, i))
            shift(comm, X)

        def program(comm):
            background = comm.background()
            finishes = [background.start(lambda comm, i=i: job(comm, i)) for i in range(3)]
            heard.append(comm.rank)
            for finish in finishes:
                finish()

        run_ranks(3, program, seed=seed)
        return heard

    orders = [order(seed) for seed in range(5)]
    assert orders == [order(seed) for seed in range(5)]
    assert len(set(map(tuple, orders))) > 1


# The virtual clock


def cost(nbytes):
    return A + nbytes / B


@given(
    p=st.integers(2, 5),
    jobs=st.lists(st.tuples(st.integers(0, 8), st.integers(0, 300)), min_size=1, max_size=6),
    later=st.integers(0, 20),
)
def test_a_job_starts_when_it_was_posted_or_when_the_one_before_is_done(p, jobs, later):
    """C_j = max(R_j, C_(j-1)) + c_j, and the rank goes on at the later of its own clock and that."""

    def job(comm, n):
        shift(comm, np.zeros(n))
        return comm.time()

    def program(comm):
        background, finishes = comm.background(), []
        for quarters, n in jobs:
            comm.compute(quarters / 4)
            finishes.append(background.start(lambda comm, n=n: job(comm, n)))
        comm.compute(later / 4)
        return [(finish(), comm.time()) for finish in finishes]

    posted, done, expected = 0.0, 0.0, []
    for quarters, n in jobs:
        posted += quarters / 4
        done = max(posted, done) + cost(8 * n)
        expected.append(done)
    own = posted + later / 4
    world = VirtualCluster(p, Link(A, B))
    assert world.run(program) == [[(end, max(own, end)) for end in expected]] * p
    assert world.clocks == [max(own, done)] * p


def test_a_background_uses_the_ports_of_its_rank():
    def program(comm):
        finish = comm.background().start(lambda comm: shift(comm, np.zeros(128)))
        shift(comm, np.zeros(128))
        finish()
        return comm.time()

    world = VirtualCluster(2, Link(A, B))
    assert world.run(program) == [2 * cost(1024)] * 2
    assert {(t.source, t.destination) for t in world.transfers} == {(0, 1), (1, 0)}


def test_what_a_job_reduces_takes_its_ranks_slowness_and_none_of_its_time():
    def program(comm):
        finish = comm.background().start(lambda comm: comm.charge_reduction(512))
        comm.compute(0.25)
        now = comm.time()
        finish()
        return now, comm.time()

    world = VirtualCluster(2, Link(A, B), reduction=2.0**-10, slowness={1: 4.0})
    assert world.run(program) == [(0.25, 0.5), (1.0, 2.0)]
