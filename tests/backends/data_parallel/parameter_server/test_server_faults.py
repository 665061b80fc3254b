"""Laws of backends/data_parallel/parameter_server/server.py and backends/comm/failure_detector.py: of a
worker or server that fails the others are told and go on, or all end with one error.
"""

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from itertools import cycle

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from backends.comm import run_ranks
from backends.comm.failure_detector import FailureDetector
from backends.data_parallel import parameter_server
from backends.data_parallel.flat import Segment
from backends.data_parallel.parameter_server import ParameterServer, server
from backends.data_parallel.parameter_server.consistency import consistency_model
from backends.data_parallel.parameter_server.server import Push
from minigrad import Parameter, ops, optim
from minigrad.data import Batch, shares
from minigrad.serial import Serial
from tests.backends.data_parallel.parameter_server.broken_servers import broken
from tests.backends.data_parallel.parameter_server.served_training import cluster, speeds
from tests.backends.data_parallel.trained_apart import Net, Plain, batches_of, built, close, step

pytestmark = pytest.mark.filterwarnings("ignore:worker .* left")


KEEPS_FIXTURES = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def momentum(parameters):
    return optim.SGD(parameters, 0.1, momentum=0.9)


def with_endings(sizes, ends, module=parameter_server, build: type = Plain, **settings):
    """The program of each rank: ``ends`` says before which step (from 0) a rank returns without a word."""

    def work(comm):
        backend = module.ParameterServer(comm, survive=True, **settings)
        model = backend.place(built(build, comm.rank))
        optimizer = momentum(model.parameters())

        def loss(out, y):
            comm.compute(1.0)
            return ops.cross_entropy(out, y)

        for t, batch in enumerate([*batches_of(sizes), None]):
            if t == ends.get(comm.rank):
                backend.pull()
                return None
            if batch is not None:
                optimizer.zero_grad()
                backend.step(model, batch, loss)
                backend.update(model, optimizer)
        backend.finalize(model)
        return model.state_dict(), backend.lost, backend.staleness_counts

    return work


def the_others_go_on(workers, servers, at, who, seed, module=parameter_server):
    """Assert that training without a worker that ended is one machine's without its samples."""
    sizes, ends = [9, 8, 10, 9, 11], {who: at}
    work = with_endings(sizes, ends, module, servers=servers, staleness=0)
    for run in (
        lambda w: run_ranks(workers + servers, w, seed=seed),
        lambda w: run_ranks(workers + servers, w, rendezvous=seed % 2 > 0),
        cluster(speeds(workers, seed), servers).run,
    ):
        results = run(work)
        assert results.pop(who) is None
        for result in results:
            assert result is not None
            state, lost, counts = result
            close(state, trained_without(workers, sizes, ends))
            assert lost == {who: (at, "it ended without a message", at)}
            assert counts == {0: workers * at + (workers - 1) * (5 - at)}


@given(
    workers=st.integers(2, 4), servers=st.integers(1, 3), at=st.integers(0, 5), who=st.integers(0, 3),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_the_others_go_on_without_one_that_ended_without_a_word(workers, servers, at, who, seed):
    the_others_go_on(workers, servers, at, who % workers, seed)


BUGS = {
    "nobody watches": ("parameter_server", 2, "set(ranks) - {self.rank}, owing or {}", "set(), {}"),
    "one is not watched": ("parameter_server", 2, "{*ranks, *servers}", "{*ranks, *servers} - {1}"),
    "nobody watches at the end": ("server", 5, "watch(missing, ", "watch([], "),
    "not told of at the end": ("server", 5, "server.lose(rank, ended.reason)", "pass"),
    "a step too many": ("server", 2, "self.clocks.pop(rank), reason", "self.clocks.pop(rank) + 1, reason"),
    "forgets its gradients": ("server", 2, "applied=self.applied[worker]", "applied=0"),
}


@pytest.mark.parametrize("bug", BUGS)
def test_the_law_of_endings_catches(bug):
    name, at, *change = BUGS[bug]
    with pytest.raises((AssertionError, RuntimeError)):
        the_others_go_on(3, 1, at, 1, 0, broken(name, tuple(change)))


class Scripted:
    """A server's side of a comm on which the pushes of ``workers`` come in this order."""

    def __init__(self, workers: Iterable[int]):
        self.coming = iter(workers)
        self.clocks: Counter[int] = Counter()

    def recv_any(self, tag):
        worker = next(self.coming)
        push = Push.pack((self.clocks[worker], 0, 1, 0), [True], np.ones(2))
        self.clocks[worker] += 1
        return worker, push

    def send(self, x, rank, tag):
        pass

    def charge_reduction(self, nbytes):
        pass


def only_debts_are_watched(order: list[int], workers: int, steps: int, module=server):
    """Assert that a worker is said to owe its next push only where the server cannot go on without it."""
    comm = Scripted(order)
    serving = module.Server(
        np.zeros(3), [Segment(0, slice(0, 2), slice(0, 2))], dict.fromkeys(range(workers), 0),
        consistency_model(workers, None, None),
    )  # fmt: skip
    for end in range(1, steps + 1):

        def watch(ranks, owing, end=end):
            assert owing == {w: comm.clocks[w] for w in range(workers) if comm.clocks[w] < end}

        serving.serve(comm, end, momentum([Parameter(np.zeros(2))]), watch)


@given(data=st.data(), workers=st.integers(1, 4), steps=st.integers(1, 5))
def test_who_is_ahead_owes_nothing(data, workers, steps):
    """One that has made all its steps is silent for as long as the slowest takes; it must not be ended."""
    only_debts_are_watched(data.draw(st.permutations([*range(workers)] * steps)), workers, steps)


def test_the_law_of_debts_catches_a_server_that_ends_who_is_done():
    change = ("if c < steps and w not in", "if w not in")
    with pytest.raises(AssertionError):
        only_debts_are_watched([0, 0, 1, 1], 2, 2, broken("server", change))


def silence_is_bounded(gaps, silent, workers, limit, monkeypatch, module=server):
    """Assert that the server gives up on a ``silent`` worker while the others push, and on no other worker.

    The ``gaps`` are the seconds before a push; a worker's own are below ``limit``.
    """
    now = 0.0

    class Timed(Scripted):
        def recv_any(self, tag):
            nonlocal now
            now += next(waits)
            assert now < 9 * limit
            return super().recv_any(tag)

    waits = cycle(gaps)
    others = [w for w in range(workers) if w != silent]
    serving = module.Server(
        np.zeros(3), [Segment(0, slice(0, 2), slice(0, 2))], dict.fromkeys(range(workers), 0),
        consistency_model(workers, None, None),
    )  # fmt: skip
    silence = module.Silence()
    with monkeypatch.context() as patch:
        patch.setenv("MINIGRAD_TIMEOUT", str(limit))
        patch.setattr("time.monotonic", lambda: now)
        watch = lambda ranks, owing: silence.check(owing)  # noqa: E731
        optimizer = momentum([Parameter(np.zeros(2))])
        serving.serve(Timed([*range(workers)] * 2), 2, optimizer, watch)
        start, comm = now, Timed(cycle(others))
        comm.clocks = Counter(serving.clocks)
        with pytest.raises(TimeoutError, match=f"rank {silent} has sent nothing for {limit} s"):
            serving.serve(comm, 3, optimizer, watch)
    assert limit < now - start <= limit + max(gaps)


@KEEPS_FIXTURES
@given(data=st.data(), workers=st.integers(2, 4))
def test_a_silent_worker_ends_the_training_after_the_bound(data, workers, monkeypatch):
    gaps = data.draw(st.lists(st.floats(0.5, 8 / workers), min_size=1, max_size=5))
    silence_is_bounded(gaps, data.draw(st.integers(0, workers - 1)), workers, 9, monkeypatch)


@pytest.mark.parametrize(
    "change",
    [
        ("self.since.get(one, now)", "now"),  # each push of the others excuses the silent one
        ("in owing.items()}", "in [*owing.items(), *self.since]}"),  # who has sent is blamed for ever
        ("> wait_limit()", "> 2 * wait_limit()"),
    ],
)
def test_the_law_of_silence_catches(change, monkeypatch):
    with pytest.raises((AssertionError, TimeoutError)):
        silence_is_bounded([1.0, 2.0], 1, 3, 9, monkeypatch, broken("server", change))


def test_only_seconds_of_listening_count_as_silence(monkeypatch):
    """A watching process that the machine did not run for long has heard of nobody: nobody is to blame."""
    monkeypatch.setenv("MINIGRAD_TIMEOUT", "5")
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as other:
        watch = FailureDetector({1: other.pid})
        watch.ranks = {1}
        watch.expect({1: 0})
        for now in (100.0, 200.0, 300.0):
            assert watch.ended_rank(now, 0.0) is None
        assert other.poll() is None
        for i in range(60):
            watch.ended_rank(300 + i / 10, 0.0)
        assert other.wait(10) == -signal.SIGKILL
        assert watch.reason(1) == "it sent nothing for 5 s, and was killed"


@given(servers=st.integers(1, 2), seed=st.integers(0, 99), settings=st.sampled_from([{}, {"softsync": 1}]))
def test_a_server_that_ends_ends_all(servers, seed, settings):
    """Also without a word: the ranks that are left cannot go on, and say so at once."""
    with pytest.raises(RuntimeError, match=f"rank {1 + servers}.* (has ended|has returned)"):
        run_ranks(2 + servers, with_ended_server(1 + servers, servers=servers, **settings), seed=seed)


def with_ended_server(who, **settings):
    def work(comm):
        backend = ParameterServer(comm, survive=True, **settings)
        model = backend.place(built(Plain))
        optimizer = momentum(model.parameters())
        for t, batch in enumerate(batches_of([9] * 4)):
            if comm.rank == who and t == 2:
                return
            step(backend, model, optimizer, batch)
        backend.finalize(model)

    return work


def with_failures(sizes, fails, build: type = Plain, error=ZeroDivisionError, **settings):
    """The program of each rank: ``fails`` says in which step (from 0) a worker's loss raises."""

    def work(comm):
        backend = ParameterServer(comm, **settings)
        model = backend.place(built(build, comm.rank))
        optimizer, t = momentum(model.parameters()), 0

        def loss(out, y):
            if t == fails.get(comm.rank):
                raise error(f"of rank {comm.rank}")
            comm.compute(1.0)
            return ops.cross_entropy(out, y)

        for t, batch in enumerate(batches_of(sizes)):  # noqa: B007
            optimizer.zero_grad()
            backend.step(model, batch, loss)
            backend.update(model, optimizer)
        backend.finalize(model)
        return model.state_dict(), backend.lost, backend.staleness_counts

    return work


def trained_without(workers, sizes, fails):
    """Synchronous training on one machine, in which a worker's samples are missing from its failure on."""
    model = built(Plain)
    optimizer = momentum(model.parameters())
    for t, batch in enumerate(batches_of(sizes)):
        parts = shares(len(batch), workers)
        there = [batch[parts[w]] for w in range(workers) if t < fails.get(w, len(sizes))]
        step(
            Serial(), model, optimizer,
            Batch(np.concatenate([b.x for b in there]), np.concatenate([b.y for b in there])),
        )  # fmt: skip
    return model.state_dict()


@given(
    workers=st.integers(2, 4), servers=st.integers(1, 3), at=st.integers(0, 4), who=st.integers(0, 3),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_the_others_go_on_as_one_machine_without_its_samples(workers, servers, at, who, seed):
    sizes, fails = [9, 8, 10, 9, 11], {who % workers: at}
    work = with_failures(sizes, fails, servers=servers, staleness=0, survive=True)
    for run in (
        lambda w: run_ranks(workers + servers, w, seed=seed),
        cluster(speeds(workers, seed), servers).run,
    ):
        for state, lost, counts in run(work):
            close(state, trained_without(workers, sizes, fails))
            assert lost == {who % workers: (at, f"ZeroDivisionError: of rank {who % workers}", at)}
            assert counts == {0: workers * at + (workers - 1) * (5 - at)}


@pytest.mark.parametrize("settings", [{}, {"softsync": 1}, {"softsync": 2}, {"staleness": 2}])
@given(servers=st.integers(1, 2), seed=st.integers(0, 99), at=st.integers(0, 4), other=st.integers(0, 4))
def test_every_rule_goes_on_and_applies_all_that_was_pushed(settings, servers, seed, at, other):
    fails = {0: at, 2: other}
    work = with_failures([9] * 5, fails, servers=servers, survive=True, **settings)
    runs = run_ranks(3 + servers, work, seed=seed)
    for state, lost, counts in runs:
        close(state, runs[0][0], bound=0)
        assert {rank: (one.steps, one.applied) for rank, one in lost.items()} == {
            0: (at, at),
            2: (other, other),
        }
        assert counts.total() == 5 + at + other


def test_real_threads_and_running_statistics_of_a_worker_that_has_none():
    work = with_failures([9] * 4, {1: 0}, Net, servers=2, survive=True)
    runs = run_ranks(5, work, rendezvous=True)
    for state, lost, _ in runs:
        close(state, runs[0][0], bound=0)
        assert list(lost) == [1] and all(np.isfinite(x).all() for x in state.values())


@pytest.mark.filterwarnings("default:worker .* left")
def test_a_worker_that_left_is_told_of():
    pattern = r"worker 0 left after 2 steps \(ZeroDivisionError: of rank 0\); 2 of its gradients were applied"
    with pytest.warns(UserWarning, match=pattern):
        run_ranks(3, with_failures([9] * 4, {0: 2}, survive=True))


def test_nobody_is_left():
    work = with_failures([9] * 4, {0: 1, 1: 2}, survive=True)
    with pytest.raises(
        RuntimeError, match="all workers have left, so nobody is there to train.*of rank 0.*of rank 1"
    ):
        run_ranks(3, work)


def test_without_survive_the_error_of_a_worker_ends_all():
    with pytest.raises(ZeroDivisionError, match="of rank 1"):
        run_ranks(4, with_failures([9] * 4, {1: 2}, servers=2))


@pytest.mark.parametrize("survive", [False, True])
def test_the_error_of_a_server_ends_all(survive):
    class Failing(optim.SGD):
        def update(self, w, g, state, rate):
            raise ZeroDivisionError("of a server")

    def work(comm):
        backend = ParameterServer(comm, servers=2, survive=survive)
        model = backend.place(built(Plain))
        optimizer = Failing(model.parameters(), 0.1)
        for batch in batches_of([9] * 3):
            step(backend, model, optimizer, batch)
        backend.finalize(model)

    with pytest.raises(ZeroDivisionError, match="of a server"):
        run_ranks(4, work)


@pytest.mark.parametrize("survive", [False, True])
def test_a_gradient_that_is_not_finite_is_named_and_never_sent(survive):
    """The second worker's sample is NaN in the second step."""

    def work(comm):
        backend = ParameterServer(comm, staleness=0, survive=survive)
        model = backend.place(built(Plain))
        optimizer = momentum(model.parameters())
        for t, batch in enumerate(batches_of([6] * 3)):
            x = batch.x.copy()
            x[4] = np.nan if t == 1 else x[4]
            with np.errstate(all="ignore"):
                step(backend, model, optimizer, Batch(x, batch.y))
        backend.finalize(model)
        return model.state_dict(), backend.lost

    message = "rank 1's gradient of .* at step 1 is not finite; nothing was sent"
    if survive:
        for state, lost in run_ranks(3, work):
            assert all(np.isfinite(x).all() for x in state.values())
            assert "rank 1's gradient of first.bias at step 1" in lost[1].reason and lost[1].applied == 1
    else:
        with pytest.raises(FloatingPointError, match=message):
            run_ranks(3, work)
