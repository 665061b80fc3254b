"""Parameter servers among processes: they train, one worker may leave, and whoever is killed ends all."""

import inspect
import os
import signal
import sys

import pytest

from backends.launch.launch import find_mpiexec
from tests.backends.data_parallel import trained_apart

from .conftest import alive, until

TRAINING = """
import numpy as np
from backends.comm.collectives import allgather
from backends.data_parallel import ParameterServer
from minigrad import ops, optim
from minigrad.serial import Serial
from minigrad.mnist import load
from minigrad.models import find_net
from minigrad.train import fit
from tests.backends.data_parallel.trained_apart import OPTIMIZERS, Plain, batches_of, built

net = find_net("mlp")
servers = comm.size - 2
data = net.prepare(load("mnist5k").train, "float32")[:240]


def train(make_backend):
    model = net.build(np.random.default_rng(0))
    model = model.to(dtype="float32")
    backend = make_backend()
    model = backend.place(model)
    optimizer = optim.SGD(model.parameters(), 0.1, momentum=0.9)
    history = fit(model, optimizer, net.loss, data, backend=backend, epochs=1, batch_size=40)
    return np.concatenate([p.data.reshape(-1) for p in model.parameters()]), history.losses, backend


serial, losses, _ = train(Serial)
for settings in ({}, {"staleness": 1}, {"softsync": 1}, {"stale_rate": "divided"}):
    weights, own, backend = train(lambda: ParameterServer(comm, servers=servers, **settings))
    assert all((weights == other).all() for other in allgather(comm, weights))
    assert backend.staleness_counts.total() == 12
    assert backend.server is not None or np.mean(own[-2:]) < own[0], own
    assert "staleness" not in settings or max(backend.staleness_counts) <= 1
weights, own, backend = train(lambda: ParameterServer(comm, servers=servers, staleness=0))
assert np.abs(weights - serial).max() < 1e-5 and backend.staleness_counts == {0: 12}

# The worker of rank 1 leaves in its third step.
backend = ParameterServer(comm, servers=servers, survive=True)
model = backend.place(built(Plain, comm.rank))
optimizer = OPTIMIZERS["momentum"](model.parameters())
for t, batch in enumerate(batches_of([9] * 6)):
    optimizer.zero_grad()

    def loss(out, y):
        if comm.rank == 1 and t == 2:
            raise ZeroDivisionError("of rank 1")
        return ops.cross_entropy(out, y)

    backend.step(model, batch, loss)
    backend.update(model, optimizer)
backend.finalize(model)
assert backend.lost == {1: (2, "ZeroDivisionError: of rank 1", 2)}, backend.lost
assert backend.staleness_counts.total() == 6 + 2
"""


@pytest.mark.parametrize("servers", [1, 2])
def test_two_workers_train_with_servers_and_one_may_leave(pool, servers):
    out = pool.run(2 + servers, TRAINING)
    assert "worker 1 left after 2 steps (ZeroDivisionError: of rank 1); 2 of its gradients" in out


FOR_EVER = """
from backends.data_parallel import ParameterServer
backend = ParameterServer(comm, servers=2, survive=True)
model = backend.place(built(Plain))
optimizer = OPTIMIZERS["sgd"](model.parameters())
while True:
    step(backend, model, optimizer, batches_of([9])[0])
    if not os.path.exists(f"{comm.rank}.steps"):
        open(f"{comm.rank}.steps", "w").close()
"""


@pytest.mark.parametrize("victim", [1, 2], ids=["worker", "server"])
def test_a_rank_that_is_killed_ends_all(processes, victim):
    """MPICH without fault tolerance: whoever is killed, mpiexec ends the job at once."""
    mpiexec = [str(find_mpiexec()), "-n", "4", sys.executable, "-m", "mpi4py"]
    script = inspect.getsource(trained_apart).replace("import numpy as np\n", "", 1) + FOR_EVER
    with processes.running(4, script, *mpiexec) as (job, pids):
        until(lambda: all((processes.folder / f"{rank}.steps").exists() for rank in range(4)), 30)
        os.kill(pids[victim], signal.SIGKILL)
        assert job.wait(10) != 0
        until(lambda: not any(alive(pid) for pid in pids), 5)
