"""Laws of backends/data_parallel/parameter_server/parameter_server.py, server.py and
consistency.py: equal to one machine in the exact limits, to a list of events always; bytes and time.
"""

from collections import Counter

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from backends.comm import run_ranks
from backends.comm.collectives.link import Link
from backends.comm.trace import Traced
from backends.consistency import running_statistics
from backends.data_parallel.parameter_server import ParameterServer
from minigrad import nn, ops, optim
from minigrad.data import Batch, shares
from minigrad.serial import Serial
from minigrad.train import fit
from tests.backends.data_parallel.parameter_server.served_training import (
    cluster,
    is_the_simulated_training,
    speeds,
    training,
)
from tests.backends.data_parallel.parameter_server.server_laws import (
    METHODS,
    a_straggler_holds_the_others_up_only_after_s_steps,
    leads,
    shards_are_even_and_cover_everything_once,
)
from tests.backends.data_parallel.trained_apart import Net, Plain, batches_of, built, close, step

SIZES = st.lists(st.integers(1, 11), min_size=1, max_size=6)
RATES = [{"stale_rate": "divided"}, {"stale_rate": "naive"}]
RULES = [{}, {"softsync": 1}, {"staleness": 0}, {"staleness": 2}, *RATES]


def trained_serially(sizes, make):
    model = built(Plain)
    optimizer = make(model.parameters())
    for batch in batches_of(sizes):
        step(Serial(), model, optimizer, batch)
    return model.state_dict()


# Exact limits


@pytest.mark.parametrize("name", METHODS)
@given(servers=st.integers(1, 4), sizes=SIZES, settings=st.sampled_from(RULES))
def test_one_worker_is_serial_to_the_last_bit(name, servers, sizes, settings):
    expected = trained_serially(sizes, METHODS[name])
    for run in run_ranks(1 + servers, training(sizes, METHODS[name], servers=servers, **settings)):
        close(run.state, expected, bound=0)
        assert run.staleness == {0: len(sizes)}


def test_one_worker_and_one_server_clip_as_one_machine():
    clipped = lambda parameters: optim.SGD(parameters, 0.1, momentum=0.9).clipped(0.1)  # noqa: E731
    for run in run_ranks(2, training([7, 3, 5], clipped)):
        close(run.state, trained_serially([7, 3, 5], clipped), bound=0)


@pytest.mark.parametrize("name", METHODS)
@given(workers=st.integers(1, 4), servers=st.integers(1, 3), sizes=SIZES, rendezvous=st.booleans())
def test_staleness_zero_is_synchronous_training(name, workers, servers, sizes, rendezvous):
    """Also with shares that differ or are empty, after every update, and seen from every rank."""

    def work(comm):
        backend = ParameterServer(comm, servers=servers, staleness=0)
        model, reference = backend.place(built(Plain, comm.rank)), built(Plain)
        optimizer, method = METHODS[name](model.parameters()), METHODS[name](reference.parameters())
        for batch in batches_of(sizes):
            step(backend, model, optimizer, batch)
            step(Serial(), reference, method, batch)
            close(backend.state.full_parameters(model), Serial().state.full_parameters(reference))
        backend.finalize(model)
        close(model.state_dict(), reference.state_dict())
        pushed = sum(min(workers, len(b)) for b in batches_of(sizes))
        assert backend.staleness_counts == {0: pushed}

    run_ranks(workers + servers, work, rendezvous=rendezvous)


def test_a_schedule_and_two_calls_of_fit():
    data = batches_of([20])[0]

    def train(model, backend=None):
        optimizer = optim.SGD(model.parameters(), 0.1, momentum=0.9)
        for _ in range(2):
            fit(
                model, optimizer, ops.cross_entropy, data, backend=backend, epochs=2, batch_size=6,
                schedule=lambda t: 0.1 / (1 + t),
            )  # fmt: skip
        return model.state_dict()

    def work(comm):
        backend = ParameterServer(comm, servers=2, staleness=0)
        return train(backend.place(built(Plain, comm.rank)), backend)

    for state in run_ranks(5, work):
        close(state, train(built(Plain)))


def test_on_the_command_line(minigrad):
    common = ("train", "--net", "mlp", "--strategy", "server", "--transport", "threads", "--epochs", "1")
    options = ("--data", "4", "--option", "servers=2", "--option", "staleness=1", "--batch", "500")
    status, out, err = minigrad(*common, *options)
    assert status == 0 and "test accuracy" in out, err
    (counts,) = [line for line in out.splitlines() if "gradients by staleness" in line]
    assert "0: " in counts and "mean" in counts
    status, _, err = minigrad(*common, "--data", "1")
    assert status == 1 and "needs a server and a worker, got 1 rank" in err


# Everything else, against the event simulation


rules = st.sampled_from(
    [*RULES, {"softsync": 2}, *({"softsync": 2} | rate for rate in RATES), {"staleness": 1}]
)


@pytest.mark.parametrize("name", METHODS)
@settings(max_examples=settings().max_examples // 2)
@given(
    workers=st.integers(2, 5), servers=st.integers(1, 3), settings=rules, seed=st.integers(0, 999),
    steps=st.integers(1, 7), drains=st.sets(st.integers(1, 6), max_size=2),
)  # fmt: skip
def test_it_is_the_simulated_training(name, workers, servers, settings, seed, steps, drains):
    """Parameters, and the staleness of every gradient, do not depend on the number of servers.

    Also where it is drained, as before a checkpoint: what follows is another such training.
    """
    drains = sorted(drain for drain in drains if drain < steps)
    slowness = speeds(workers, seed)
    is_the_simulated_training(
        slowness, [9] * steps, METHODS[name], servers=servers, drains=drains, **settings
    )


@given(workers=st.integers(1, 4), settings=rules, seed=st.integers(0, 99))
def test_servers_are_one_server_to_the_last_bit(workers, settings, seed):
    if settings.get("softsync", 1) > workers:
        return
    states = []
    for servers in (1, 2, 3):
        runs = cluster(speeds(workers, seed), servers).run(
            training([9, 8, 7, 6], METHODS["adagrad"], servers=servers, **settings)
        )
        states.append([run.state for run in runs])
    for state in [s for rank_states in states for s in rank_states]:
        close(state, states[0][0], bound=0)


@given(seed=st.integers(0, 99), settings=rules)
def test_the_same_cluster_gives_the_same_training(seed, settings):
    work = training([9, 3, 11, 5], METHODS["momentum"], servers=2, **settings)
    make = lambda: cluster(speeds(3, seed), 2, Link(0.01, 1e5), jitter=0.5, seed=seed)  # noqa: E731
    one, other = make().run(work), make().run(work)
    assert one[0].staleness == other[0].staleness
    close(one[0].state, other[0].state, bound=0)


@given(
    workers=st.integers(2, 5),
    servers=st.integers(1, 3),
    sizes=SIZES,
    settings=rules,
    seed=st.integers(0, 999),
)
def test_what_is_pushed_is_applied_once(workers, servers, sizes, settings, seed):
    """Also of empty shares, in any order of events; and all ranks end with the same parameters."""
    runs = run_ranks(
        workers + servers, training(sizes, METHODS["sgd"], servers=servers, **settings), seed=seed
    )
    for run in runs:
        close(run.state, runs[0].state, bound=0)
    for server in runs[workers:]:
        parts = [shares(n, workers) for n in sizes]
        pushed = {w: sum(p[w].start < p[w].stop for p in parts) for w in range(workers)}
        assert server.applied == Counter(pushed)
        assert sum(runs[0].staleness.values()) == sum(pushed.values())


def test_running_statistics_are_the_workers_mean():
    def work(comm):
        backend = ParameterServer(comm, servers=2)
        model = backend.place(built(Net, comm.rank))
        optimizer = METHODS["sgd"](model.parameters())
        for batch in batches_of([2, 10]):
            step(backend, model, optimizer, batch)
        own = np.concatenate(running_statistics(model))
        backend.finalize(model)
        return backend.samples, own, np.concatenate(running_statistics(model)), model.state_dict()

    runs = run_ranks(5, work)
    statistics = [run[0] for run in runs]
    assert statistics == [3, 4, 5, 0, 0]
    mean = sum(n * run[1] for n, run in zip(statistics, runs, strict=True)) / sum(statistics)
    for run in runs:
        np.testing.assert_allclose(run[2], mean, rtol=1e-12)
        close(run[3], runs[0][3], bound=0)


# Staleness


@pytest.mark.parametrize("workers", [2, 3, 5])
def test_equal_workers_are_stale_by_all_the_others(workers):
    """tau = p - 1 in steady state; the first round, of one version, brings 0, 1, ..., p - 1."""
    steps = 6
    expected = Counter(range(workers)) + Counter({workers - 1: workers * (steps - 1)})
    assert cluster([1.0] * workers).run(training([9] * steps, METHODS["sgd"]))[0].staleness == expected


@pytest.mark.parametrize("n", [1, 2, 4, 8])
def test_softsync_is_stale_by_n(n):
    """8 workers: values 0 to 2n, mean (1 - 1/8) n: 7 others' gradients for each own, 8 / n to an update.

    The first versions are fresher; of 60 steps that takes less than a tenth off the mean.
    """
    work = training([8] * 60, METHODS["sgd"], softsync=n)
    counts = cluster([1.0] * 8, jitter=0.3, seed=n).run(work)[0].staleness
    mean = sum(tau * k for tau, k in counts.items()) / counts.total()
    assert counts.total() == 8 * 60 and set(counts) <= set(range(2 * n + 1))
    assert 0.9 * 0.875 * n <= mean <= 0.875 * n + 0.05


@given(workers=st.integers(2, 5), servers=st.integers(1, 2), s=st.integers(0, 3), seed=st.integers(0, 999))
def test_nobody_is_further_ahead_than_the_bound(workers, servers, s, seed):
    make = lambda comm: ParameterServer(comm, servers=servers, staleness=s)  # noqa: E731
    for run in (
        cluster(speeds(workers, seed), servers, jitter=0.9, seed=seed).run,
        threads(workers + servers),
    ):
        clocks = [0] * workers
        for lead, stale in run(lambda comm, clocks=clocks: leads(comm, make(comm), clocks, 6)):
            assert lead <= s and stale <= s


def threads(ranks):
    return lambda work: run_ranks(ranks, work)


@pytest.mark.parametrize("s", [0, 1, 3])
def test_a_straggler_holds_the_others_up_only_after_s_steps(s):
    a_straggler_holds_the_others_up_only_after_s_steps(s)


# Of three equal workers the gradients are stale by 0, 1, 2, 2, 2, ...
MOVED = {
    ("naive", None): 9,
    ("divided", None): 1 + 1 + 7 / 2,
    ("damped", None): 1 / 3 + 1 / 4 + 7 / 5,
    ("damped", 0): 3,
}


@pytest.mark.parametrize(("stale_rate", "staleness"), MOVED)
def test_by_how_much_a_gradient_moves_the_parameters(stale_rate, staleness):
    """A gradient of 1 everywhere, three steps: by lr / (3 + tau) damped, lr / tau divided, lr naively."""

    class One(nn.Module):
        def __init__(self, rng):
            self.w = nn.Parameter(np.zeros(1))

        def forward(self, x):
            return ops.add(self.w, x)

    def work(comm):
        backend = ParameterServer(comm, stale_rate=stale_rate, staleness=staleness)
        model = backend.place(One(None))
        optimizer = optim.SGD(model.parameters(), 0.5)
        for _ in range(3):
            optimizer.zero_grad()
            batch = Batch(np.zeros((3, 1)), np.zeros(3))
            backend.step(model, batch, lambda out, y: (comm.compute(1.0), ops.mean(out))[1])
            backend.update(model, optimizer)
        backend.finalize(model)
        return float(model.parameters()[0].data[0])

    assert cluster([1.0] * 3).run(work) == pytest.approx([-0.5 * MOVED[stale_rate, staleness]] * 4)


# Bytes and time


@given(n=st.integers(1, 60), servers=st.integers(1, 9))
def test_shards_are_even_and_cover_everything_once(n, servers):
    shards_are_even_and_cover_everything_once(n, servers)


@given(workers=st.integers(1, 4), servers=st.integers(1, 3), steps=st.integers(1, 3))
def test_each_server_gets_and_sends_its_share_for_every_worker(workers, servers, steps):
    """p n / S each way and step, and with each message a few figures."""

    def work(comm):
        traced = Traced(comm)
        backend = ParameterServer(traced, servers=servers)
        model = backend.place(built(Plain))
        optimizer = METHODS["sgd"](model.parameters())
        ledger = traced.record.ledger
        sent, heard = ledger.sent(), ledger.received()
        for batch in batches_of([8] * steps):
            step(backend, model, optimizer, batch)
        backend.pull()
        n = sum(p.size for p in model.parameters() if p.requires_grad)
        cuts = shares(n, servers)
        pushes = [8 * (4 + len(backend.layout.segments(i)) + c.stop - c.start) for i, c in enumerate(cuts)]
        answers = [8 * (1 + c.stop - c.start) for c in cuts]
        out, into = (
            now.bytes - then.bytes for now, then in ((ledger.sent(), sent), (ledger.received(), heard))
        )
        if backend.server is None:
            assert (out, into) == (steps * sum(pushes), steps * sum(answers))
        else:
            mine = comm.rank - workers
            assert (into, out) == (steps * workers * pushes[mine], steps * workers * answers[mine])

    run_ranks(workers + servers, work)


def seconds_per_step(workers, servers):
    """Seconds per step of training whose messages take time, and whose computing takes nearly none."""
    seconds = []
    for steps in (4, 14):
        world = cluster([1.0] * workers, servers, Link(0.0, 1e3))
        world.run(training([16] * steps, METHODS["sgd"], seconds=1e-6, servers=servers, staleness=0))
        seconds.append(world.seconds)
    return (seconds[1] - seconds[0]) / 10


def test_one_server_is_the_bottleneck_and_more_servers_cure_it():
    """One port is busy in proportion to the workers; each of four a fourth of that and some figures."""
    one = {p: seconds_per_step(p, 1) for p in (2, 4, 8)}
    assert one[8] / one[4] == pytest.approx(2, rel=0.25)
    assert one[4] / one[2] == pytest.approx(2, rel=0.25)
    assert seconds_per_step(8, 4) < 0.5 * one[8]


# Mistakes


@pytest.mark.parametrize(
    ("ranks", "settings", "message"),
    [
        (1, {}, "needs at least 2 ranks, a server and a worker; got 1"),
        (3, {"servers": 3}, "of 3 ranks 1 to 2 can be servers, got 3"),
        (3, {"servers": 0}, "of 3 ranks 1 to 2 can be servers, got 0"),
        (2, {"staleness": -1}, "staleness must be at least 0 steps, got -1"),
        (3, {"softsync": 3}, "softsync must be 1 to 2, the number of workers, got 3"),
        (
            3,
            {"softsync": 1, "staleness": 1},
            "staleness=1 and softsync=1 choose different consistency models",
        ),
        (2, {"stale_rate": "old"}, "unknown stale_rate 'old'; choose one of damped, divided, naive"),
        (2, {"micro_batches": 0}, "micro_batches must be at least 1, got 0"),
    ],
)
def test_settings_that_do_not_fit(ranks, settings, message):
    with pytest.raises(ValueError, match=message):
        run_ranks(ranks, lambda comm: ParameterServer(comm, **settings).place(built(Plain)))


def test_more_servers_than_parameters():
    def work(comm):
        ParameterServer(comm, servers=4).place(nn.Linear(1, 2, rng=np.random.default_rng(0)))
        ParameterServer(comm, servers=5).place(nn.Linear(1, 2, rng=np.random.default_rng(0)))

    with pytest.raises(ValueError, match="4 parameters cannot be cut among 5 servers; take fewer"):
        run_ranks(6, work)


def test_all_ranks_must_choose_the_same_rule():
    with pytest.raises(ValueError, match="rank 0 has staleness = 0, rank 1 has 1"):
        run_ranks(3, lambda comm: ParameterServer(comm, staleness=comm.rank % 2).place(built(Plain)))


@pytest.mark.parametrize("make", [lambda p: optim.LARS(p), lambda p: optim.SGD(p, 0.1).clipped(1.0)])
def test_norms_of_whole_parameters_need_one_server(make):
    with pytest.raises(ValueError, match="each of 2 servers knows the norm of its own part only"):
        run_ranks(4, training([9], make, servers=2))


def test_it_does_not_claim_to_be_serial():
    assert not ParameterServer.traits.equals_serial
