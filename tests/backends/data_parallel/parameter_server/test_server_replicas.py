"""Laws of backends/data_parallel/parameter_server/parameter_server.py: to the servers a replica of several
ranks is one worker, and its parts stay together.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from minigrad_course.machines.virtual_cluster import VirtualCluster

from backends.comm import run_ranks
from backends.comm.collectives.link import Link
from backends.comm.mailboxes import Deadlock
from backends.data_parallel import parameter_server
from backends.grid import Grid
from backends.model_parallel import ModelParallel
from backends.pipeline import Pipeline
from backends.stack import Stack
from minigrad import nn, ops, optim
from minigrad.data import Batch, shares
from minigrad.serial import Serial
from tests.bugs.mutant import mutant
from tests.nets import grouped

WIDTH = 6
OPTIMIZERS = {
    "sgd": lambda parameters: optim.SGD(parameters, 0.1, weight_decay=0.01),
    "momentum": lambda parameters: optim.SGD(parameters, 0.1, momentum=0.9),
    "adam": lambda parameters: optim.Adam(parameters, 0.01, eps=1e-3),
    "groups": grouped,
}
INNER = {
    "whole": lambda grid: [],
    "split": lambda grid: [ModelParallel(grid.model, {"0": "column", "2": "row"})],
    "pipeline": lambda grid: [Pipeline(grid.pipe, schedule="1f1b", micro_batches=1)],
    "split pipeline": lambda grid: [
        Pipeline(grid.pipe, schedule="1f1b", micro_batches=1),
        ModelParallel(grid.model, {"0": "column", "2": "row"}),
    ],
}
SHAPES = {"whole": (1, 1), "split": (1, 2), "pipeline": (2, 1), "split pipeline": (2, 2)}  # pipe x model


def net(rng):
    layers = (
        nn.Linear(WIDTH, 8, rng=rng),
        nn.Tanh(),
        nn.Linear(8, 5, rng=rng),
        nn.Tanh(),
        nn.Linear(5, 3, rng=rng),
    )
    return nn.Sequential(*layers)


def batches_of(sizes):
    rng = np.random.default_rng(0)
    return [Batch(rng.normal(size=(n, WIDTH)), rng.integers(0, 3, n)) for n in sizes]


def train(backend, sizes, make, before_push=lambda: None, loss_fn=ops.cross_entropy, rank=0):
    """All parameters of the serial model after training, on every rank."""
    model = backend.place(net(np.random.default_rng(rank)).to(dtype=np.float64))
    optimizer = make(model.parameters())
    for batch in batches_of(sizes):
        optimizer.zero_grad()
        backend.step(model, batch, loss_fn)
        before_push()
        backend.update(model, optimizer)
    backend.finalize(model)
    values = {name: value.copy() for name, value in backend.state.full_parameters(model).items()}
    backend.close()
    return values


def stack_of(comm, kind, data, module=parameter_server, **how):
    pipe, model = SHAPES[kind]
    grid = Grid(comm, data=data, pipe=pipe, model=model)
    return Stack(module.ParameterServer(grid.data, **how), *INNER[kind](grid))


def ranks_of(kind, data):
    return data * int(np.prod(SHAPES[kind]))


@settings(max_examples=20)
@given(
    kind=st.sampled_from(list(INNER)),
    workers=st.integers(1, 3),
    servers=st.integers(1, 2),
    make=st.sampled_from(list(OPTIMIZERS)),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=3),
)
def test_staleness_0_trains_like_serial(kind, workers, servers, make, sizes):
    make = OPTIMIZERS[make]
    expected = train(Serial(), sizes, make)

    def work(comm):
        return train(
            stack_of(comm, kind, workers + servers, servers=servers, staleness=0), sizes, make, rank=comm.rank
        )

    for actual in run_ranks(ranks_of(kind, workers + servers), work):
        for name, value in expected.items():
            np.testing.assert_allclose(actual[name], value, rtol=0, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("make", OPTIMIZERS)
@pytest.mark.parametrize("kind", [kind for kind in INNER if kind != "whole"])
def test_one_replica_has_the_bits_of_its_own_strategy(kind, make):
    """And with a pipeline of one micro-batch those of serial training."""
    sizes, make = [7, 2, 5], OPTIMIZERS[make]
    pipe, model = SHAPES[kind]

    def alone(comm):
        return train(Stack(*INNER[kind](Grid(comm, pipe=pipe, model=model))), sizes, make)

    expected = run_ranks(pipe * model, alone)[0]
    actual = run_ranks(ranks_of(kind, 2), lambda comm: train(stack_of(comm, kind, 2), sizes, make))
    serial = train(Serial(), sizes, make)
    for values in actual:
        for name, value in expected.items():
            assert np.array_equal(values[name], value), name
            assert kind != "pipeline" or np.array_equal(value, serial[name]), name


# On a virtual clock: the ranks of a replica are not equally fast, so their pushes arrive in several orders.


def run_of(kind, seconds, late, sizes, module=parameter_server):
    """What every rank took, saw and ended with: pushes by worker, versions by step, and all parameters.

    A step of worker w takes ``seconds[w]``; before it pushes, its rank k waits ``late[w][k]`` more.
    """
    workers, size = len(seconds), int(np.prod(SHAPES[kind]))

    class Recorded(module.ParameterServer):
        def __init__(self, *arguments, **settings):
            super().__init__(*arguments, **settings)
            self.pushes_taken, self.versions_seen = [], []

        def next_push(self):
            worker, message = super().next_push()
            self.pushes_taken.append(worker)
            return worker, message

        def begin_step(self, model):
            computes = super().begin_step(model)
            self.versions_seen.append(list(self.versions))
            return computes

    def work(comm):
        worker, place = divmod(comm.rank, size)
        pipe, model = SHAPES[kind]
        grid = Grid(comm, data=workers + 1, pipe=pipe, model=model)
        outer = Recorded(grid.data)

        def loss(out, y):
            comm.compute(seconds[worker])
            return ops.cross_entropy(out, y)

        def pause():
            if worker < workers:
                comm.compute(late[worker][place])

        values = train(Stack(outer, *INNER[kind](grid)), sizes, OPTIMIZERS["momentum"], pause, loss)
        return outer.pushes_taken, outer.versions_seen, values

    runs = VirtualCluster((workers + 1) * size, Link(0.0)).run(work)
    return [runs[start : start + size] for start in range(0, len(runs), size)]


def parts_stay_together(kind, seconds, late, sizes, module=parameter_server):
    """Assert that the ranks of a server take one order of pushes, and those of a worker see one version."""
    *workers, server = run_of(kind, seconds, late, sizes, module)
    for pushes, _, _ in server:
        assert pushes == server[0][0], f"ranks of the server took the pushes {server[0][0]} and {pushes}"
    for ranks in workers:
        for _, versions, _ in ranks:
            assert versions == ranks[0][1], f"ranks of a worker saw the versions {ranks[0][1]} and {versions}"
    expected = replayed(server[0][0], len(workers), sizes)
    for _, _, values in (one for ranks in (*workers, server) for one in ranks):
        for name, value in expected.items():
            error = abs(values[name] - value).max()
            assert error < 1e-11, f"{name} differs from the replay of the pushes by {error:.1e}"


def replayed(order, workers, sizes):
    """All parameters after these pushes, by worker, on one machine; each then has the newest parameters."""
    model = net(np.random.default_rng(0)).to(dtype=np.float64)
    optimizer = OPTIMIZERS["momentum"](model.parameters())
    rate, batches, clocks = optimizer.lr, batches_of(sizes), [0] * workers
    copies = [(model.state_dict(), 0)] * workers
    for version, worker in enumerate(order):
        batch, current = batches[clocks[worker]], model.state_dict()
        own, used = copies[worker]
        model.load_state_dict(own)
        optimizer.zero_grad()
        Serial().step(model, batch[shares(len(batch), workers)[worker]], ops.cross_entropy)
        model.load_state_dict(current)
        optimizer.lr = rate / (workers + version - used)
        optimizer.step()
        clocks[worker] += 1
        copies[worker] = model.state_dict(), version + 1
    return model.state_dict()


def events_are_those_of_single_ranks(kind, seconds, sizes, module=parameter_server):
    """Assert that replicas whose ranks are equally fast train as workers of one rank do."""
    late = [[0.0] * int(np.prod(SHAPES[kind]))] * len(seconds)
    actual, expected = run_of(kind, seconds, late, sizes, module), run_of("whole", seconds, late, sizes)
    for ranks, (one,) in zip(actual, expected, strict=True):
        for pushes, versions, values in ranks:
            assert pushes == one[0], f"pushes came from {pushes}, with single ranks from {one[0]}"
            assert versions == one[1], f"a worker saw the versions {versions}, a single rank {one[1]}"
            for name, value in one[2].items():
                np.testing.assert_allclose(values[name], value, rtol=0, atol=1e-11, err_msg=name)


def speeds(seed, shape):
    """Seconds of which no two sums are equal."""
    return np.random.default_rng([seed, 7]).uniform(0.5, 4.0, shape).tolist()


@settings(max_examples=15)
@given(kind=st.sampled_from(list(INNER)), workers=st.integers(2, 4), seed=st.integers(0, 999))
def test_the_parts_of_a_model_stay_together(kind, workers, seed):
    late = speeds(seed, (workers, int(np.prod(SHAPES[kind]))))
    parts_stay_together(kind, speeds(seed + 1, workers), late, [9, 8, 9, 7])


@settings(max_examples=10)
@given(kind=st.sampled_from(["split"]), workers=st.integers(1, 4), seed=st.integers(0, 999))
def test_the_events_are_those_of_single_ranks(kind, workers, seed):
    events_are_those_of_single_ranks(kind, speeds(seed, workers), [9, 8, 9, 7])


MODULE = "backends.data_parallel.parameter_server.parameter_server"
FIRST = "first = all(comm.rank == 0 for comm in self.replica)"
BUGS = {
    "each rank takes what arrives": (
        (FIRST, "first = True"),
        ("for comm in self.replica:\n", "for comm in []:\n"),
    ),
    "each rank takes what arrives, as that of the first rank's worker": ((FIRST, "first = True"),),
    "each rank takes the next push of the next worker": (
        ("worker = int(broadcast(comm, np.array(worker)))", "worker = self.steps % self.workers"),
    ),
}


@pytest.mark.parametrize("bug", BUGS)
def test_the_law_catches_a_server_that(bug):
    case = "split", [1.0, 1.37, 3.71], [[0.0, 5.0], [1.0, 0.1], [0.3, 2.0]], [9, 8, 9]
    parts_stay_together(*case)
    with pytest.raises((AssertionError, Deadlock, RuntimeError)):
        parts_stay_together(*case, mutant(MODULE, *BUGS[bug]))


def test_a_replica_does_not_survive_the_end_of_a_rank():
    with pytest.raises(ValueError, match="survive lets single workers end, .* leave survive out"):
        run_ranks(4, lambda comm: stack_of(comm, "split", 2, survive=True))


def test_clipping_needs_the_norm_of_the_whole_model():
    make = lambda parameters: optim.SGD(parameters, 0.1).clipped(1.0)  # noqa: E731
    with pytest.raises(ValueError, match="each of 2 servers knows the norm of its own part only"):
        run_ranks(4, lambda comm: train(stack_of(comm, "split", 2), [4], make))
