"""Laws of backends/data_parallel/parameter_server/parameter_server.py: servers beside workers train as
servers apart, and a share of the bytes stays on a machine.
"""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from backends.comm import run_ranks
from backends.data_parallel.parameter_server import ParameterServer
from backends.data_parallel.parameter_server.server import PUSH
from backends.grid import colocate_servers
from tests.backends.data_parallel.parameter_server.served_training import cluster, training
from tests.backends.data_parallel.trained_apart import OPTIMIZERS, close
from tests.bugs.mutant import mutant

SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=4)


def counts_workers_first(beside, workers, servers):
    """Every rank has one new number; servers are the last, each of them the odd one of a pair."""

    def numbers(comm):
        group = beside(comm, servers)
        assert group.size == comm.size
        return group.rank

    new = run_ranks(workers + servers, numbers)
    old = {number: rank for rank, number in enumerate(new)}
    assert sorted(new) == list(range(workers + servers))
    assert [old[workers + i] for i in range(servers)] == [2 * i + 1 for i in range(servers)]
    assert [old[w] for w in range(workers)] == sorted(old[w] for w in range(workers))


@given(workers=st.integers(1, 5), data=st.data())
def test_counts_workers_first(workers, data):
    counts_workers_first(colocate_servers, workers, data.draw(st.integers(1, workers)))


@pytest.mark.parametrize(
    "change",
    [
        (
            "comm.split(0, workers + pair if serves else pair)",
            "comm.split(0, pair if serves else workers + pair)",
        ),
        ("comm.split(0, comm.rank - servers)", "comm.split(0, workers + comm.rank)"),
        ("if pair >= servers:", "if pair > servers:"),
    ],
)
def test_another_count_is_caught(change):
    broken = mutant("backends.grid", change)
    with pytest.raises(AssertionError):
        for workers, servers in ((2, 1), (3, 1), (3, 2), (3, 3)):
            counts_workers_first(broken.colocate_servers, workers, servers)


@given(workers=st.integers(1, 4), sizes=SIZES, data=st.data())
def test_trains_as_with_servers_apart(workers, sizes, data):
    servers = data.draw(st.integers(1, workers))
    work = {
        colocated: training(sizes, OPTIMIZERS["momentum"], servers=servers, staleness=0, colocated=colocated)
        for colocated in (False, True)
    }
    apart, beside = (run_ranks(workers + servers, work[colocated]) for colocated in (False, True))
    for run in beside:
        close(run.state, apart[0].state, bound=0)
        assert run.staleness == apart[0].staleness


@pytest.mark.parametrize("servers", [1, 2, 3])
def test_one_of_so_many_parts_stays_on_the_machine(servers):
    """Each of ``servers`` workers sends one of as many parts of its gradient to the server next to it."""
    steps = 4
    machines = cluster([1.0] * 3, servers)
    machines.run(training([6] * steps, OPTIMIZERS["sgd"], servers=servers, staleness=0, colocated=True))
    pushes = [t for t in machines.transfers if t.tag == PUSH]
    near = [t for t in pushes if t.source // 2 == t.destination // 2 and t.destination < 2 * servers]
    assert len(pushes) == 3 * servers * steps
    assert len(near) == servers * steps


def test_more_servers_than_workers_are_refused():
    with pytest.raises(ValueError, match="2 servers cannot sit beside 1 workers; take at most 1"):
        run_ranks(3, lambda comm: ParameterServer(comm, servers=2, colocated=True))
