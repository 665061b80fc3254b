"""A real Slurm, where one is installed and asked for.

``apt-get install slurm-wlm munge``, then ``MINIGRAD_SLURM=1 pytest -n 0 tests/mpi/test_slurm.py``.
"""

import os
import sys

import pytest

from backends.launch.launch import find_mpiexec, mpiexec_vendor
from tests.mpi.slurm import Slurm, problem

MINIGRAD = f"{sys.executable} -m backends"
WHO = """
from mpi4py import MPI
from backends.comm.mpi import MPIComm
comm = MPIComm(MPI.COMM_WORLD)
print(f"rank {comm.rank} of {comm.size}\\n", end="", flush=True)
"""
REFUSED = "minigrad: srun started 2 tasks that do not know one another; write srun --mpi=pmi2"

pytestmark = pytest.mark.skipif("MINIGRAD_SLURM" not in os.environ, reason="MINIGRAD_SLURM is not set")


@pytest.fixture(scope="module", params=["none", "pmi2"])
def default(request):
    """MpiDefault: how a srun connects tasks that is not told."""
    return request.param


@pytest.fixture(scope="module")
def slurm(default, tmp_path_factory):
    if reason := problem():
        pytest.fail(reason)
    with Slurm(tmp_path_factory.mktemp("slurm"), default) as slurm:
        yield slurm


@pytest.fixture
def batch(slurm, tmp_path):
    """Runs a line as a batch script of two tasks: its status, and the lines it printed."""
    (tmp_path / "who.py").write_text(WHO, encoding="utf-8")

    def run(line):
        status, out = slurm.batch(line, tmp_path)
        print(f"$ {line}\n{out}[status {status}]")
        return status, out.splitlines()

    return run


def how():
    """By which command ranks are started, as minigrad says it."""
    return "srun " if mpiexec_vendor() == "MPICH" else "mpiexec "


def test_run_starts_one_world(batch):
    status, (said, *ranks) = batch(f"{MINIGRAD} run -n 2 who.py")
    assert status == 0 and sorted(ranks) == ["rank 0 of 2", "rank 1 of 2"]
    assert said.startswith("in Slurm job ") and said.partition(": ")[2].startswith(how())


def test_train_and_prove_start_one_world(batch, tmp_path):
    status, out = batch(f"{MINIGRAD} train --data 2 --epochs 1 --net mlp --json train.json")
    assert status == 0 and '"ranks": 2' in (tmp_path / "train.json").read_text(encoding="utf-8")
    assert out[0].startswith("in Slurm job ") and len(list((tmp_path / "runs").iterdir())) == 1
    status, out = batch(f"{MINIGRAD} prove --data 2 --net mlp --json proof.json")
    assert status == 0 and '"data": 2' in (tmp_path / "proof.json").read_text(encoding="utf-8")


def test_the_grader_and_the_lessons_run_in_a_job(batch):
    status, out = batch(f"{MINIGRAD} grade a2 --answers --transport mpi")
    assert status == 0 and out
    assert batch(f"{MINIGRAD} lesson 05")[0] == 0


@pytest.mark.parametrize(
    "command", ["train --data 2", "train", "prove --data 2", "run -n 2 who.py", "lesson 06"]
)
def test_tasks_that_do_not_know_one_another_are_refused(batch, command, tmp_path):
    status, out = batch(f"srun --mpi=none {MINIGRAD} {command}")
    assert status == 1 and [line[: len(REFUSED)] for line in out if "minigrad:" in line] == [REFUSED]
    assert all(line.startswith(("minigrad:", "srun:")) for line in out) and not (tmp_path / "runs").exists()


def test_srun_as_it_is_set_up_connects_or_is_refused(batch, default):
    status, out = batch(f"srun {MINIGRAD} prove --data 2 --net mlp")
    connected = default == "pmi2" and mpiexec_vendor() == "MPICH"
    assert (status == 0) == connected
    assert sum("PROVED" in line for line in out) == connected
    assert sum(line.startswith("minigrad: ") for line in out) == (not connected)


def test_a_script_under_srun_is_one_world_or_none(batch):
    status, out = batch(f"srun --mpi=none {sys.executable} -m mpi4py who.py")
    assert status == 1 and sum(line.startswith(REFUSED) for line in out) == 1
    if mpiexec_vendor() == "MPICH":
        status, out = batch(f"srun --mpi=pmi2 {sys.executable} -m mpi4py who.py")
        assert status == 0 and sorted(out) == ["rank 0 of 2", "rank 1 of 2"]


@pytest.mark.skipif(find_mpiexec() is None or mpiexec_vendor() != "MPICH", reason="pmi2 is for MPICH")
def test_srun_with_pmi2_gives_the_ranks(batch):
    for command in ("prove --data 2 --net mlp", "prove --net mlp", "train --net mlp --epochs 1"):
        status, out = batch(f"srun --mpi=pmi2 {MINIGRAD} {command} --json found.json")
        assert status == 0 and not any("starting" in line or "in Slurm job" in line for line in out)
    status, out = batch(f"srun --mpi=pmi2 {MINIGRAD} prove --data 4")
    assert (
        status == 1
        and sum("--data 4 needs 4 ranks, srun started 2; run srun -n 4" in line for line in out) == 1
    )


def test_one_task_starts_its_own_ranks(batch):
    for mpi in ("none", "pmi2"):
        status, out = batch(f"srun --mpi={mpi} -n 1 {MINIGRAD} run -n 2 who.py")
        assert status == 0 and sorted(out) == ["rank 0 of 2", "rank 1 of 2"]


def test_one_rank_is_started_once(batch):
    assert batch(f"{MINIGRAD} prove --data 1 --net mlp --transport mpi")[0] == 0


def test_more_ranks_than_cpus_are_refused(batch):
    status, out = batch(f"{MINIGRAD} train --data 4")
    assert status == 1 and len(out) == 1 and out[0].startswith("minigrad: 4 ranks need 4 CPUs, and Slurm job")


def test_salloc(slurm, tmp_path):
    (tmp_path / "who.py").write_text(WHO, encoding="utf-8")
    out = slurm.call("salloc", "-n", "2", *MINIGRAD.split(), "run", "-n", "2", "who.py", cwd=tmp_path)
    assert "rank 0 of 2" in out and "rank 1 of 2" in out


def test_the_doctor_knows_the_job(batch, default):
    status, out = batch(f"COLUMNS=300 {MINIGRAD} doctor")
    (row,) = [line for line in out if "Slurm" in line]
    assert status == 0 and "1 node, 2 CPUs" in row and f"MpiDefault is {default}" in row
