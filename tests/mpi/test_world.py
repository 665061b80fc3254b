"""A process that an mpiexec or srun started alone ends in one line, before anything is trained."""

import os
import sys

import pytest

from backends.launch.launch import find_mpiexec, mpiexec_vendor
from tests.mpi.stand_ins import MPIEXEC, SRUN, put

# What was left over from another job, or is another MPI's, and a word of what is said of it
ALONE = {
    "a rank without a size": ({"PMI_RANK": "3"}, "left over from another job"),
    "Open MPI's rank without a size": ({"OMPI_COMM_WORLD_RANK": "0"}, "left over from another job"),
    "a size that is none": ({"PMI_SIZE": "abc"}, "PMI_SIZE=abc is not a number of ranks"),
    "a whole world": ({"PMI_RANK": "0", "PMI_SIZE": "2"}, "unset PMI_RANK PMI_SIZE"),
    "the last of a world": ({"PMI_RANK": "1", "PMI_SIZE": "2"}, "unset PMI_RANK PMI_SIZE"),
    "Open MPI's world": (
        {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"},
        "unset OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE",
    ),
    "srun without PMI": (
        {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "0"},
        "leave srun out",
    ),
    "what minigrad started": ({"MINIGRAD_RANKS": "2"}, "unset MINIGRAD_RANKS"),
}
TRAIN = ("train", "--data", "2", "--net", "mlp", "--epochs", "1")
WHO = """
from mpi4py import MPI
from backends.comm.mpi import MPIComm
comm = MPIComm(MPI.COMM_WORLD)
print(f"rank {comm.rank} of {comm.size}\\n", end="", flush=True)
"""


def refused(job, word):
    lines = [line for line in job.err.splitlines() if line.startswith("minigrad")]
    assert job.status != 0 and len(lines) == 1 and word in lines[0], (job.status, job.err)
    assert "loss" not in job.out and "PROVED" not in job.out and "rank" not in job.out


ALIKE = "Open MPI's rank without a size"


@pytest.mark.parametrize(
    "variables", [pytest.param(name, marks=pytest.mark.thorough) if name == ALIKE else name for name in ALONE]
)
def test_a_process_that_is_alone_trains_nothing(processes, variables):
    variables, word = ALONE[variables]
    job = processes.minigrad(*TRAIN, **variables)
    refused(job, word)
    assert len(job.err.splitlines()) == 1 or mpiexec_vendor() != "MPICH"
    assert not (processes.folder / "runs").exists()


@pytest.mark.parametrize(
    ("command", "variables"),
    [
        ("train --net mlp", "srun without PMI"),
        ("prove --data 2 --transport threads", "srun without PMI"),
        pytest.param(
            "prove --data 2 --transport threads", "a rank without a size", marks=pytest.mark.thorough
        ),
        ("lesson 06", "srun without PMI"),
        pytest.param("lesson 06", "a rank without a size", marks=pytest.mark.thorough),
        ("run -n 2 who.py", "srun without PMI"),
        ("grade a2 --answers --transport mpi", "srun without PMI"),
    ],
)
def test_no_command_goes_on_alone(processes, command, variables):
    (processes.folder / "who.py").write_text(WHO, encoding="utf-8")
    variables, word = ALONE[variables]
    refused(processes.minigrad(*command.split(), **variables), word)


@pytest.mark.parametrize("variables", ["what minigrad started", "srun without PMI", "a rank without a size"])
def test_a_script_that_is_alone_ends_where_it_takes_the_world(processes, variables):
    (processes.folder / "who.py").write_text(WHO, encoding="utf-8")
    variables, word = ALONE[variables]
    refused(processes.run([sys.executable, "-m", "mpi4py", "who.py"], variables), word)


def test_another_mpis_mpiexec_is_refused(processes):
    mine = mpiexec_vendor()
    names = "OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE" if mine == "MPICH" else "PMI_RANK PMI_SIZE"
    mpiexec = put(processes.folder / "mpiexec", MPIEXEC)
    command = [mpiexec, "-n", "2", sys.executable, "-m", "backends", *TRAIN]
    refused(processes.run(command, {"NAMES": names}), "use the mpiexec beside")
    assert not (processes.folder / "runs").exists()


def test_threads_by_each_rank_are_refused(processes):
    mpiexec = [str(find_mpiexec()), "-n", "2", sys.executable, "-m", "backends"]
    refused(processes.run([*mpiexec, *TRAIN, "--transport", "threads"]), "leave mpiexec or srun out")


# A Slurm job with a stand-in for its srun


@pytest.fixture
def job(processes):
    """Runs a command in a job of two CPUs, whose srun connects ranks by these plug-ins."""
    (processes.folder / "who.py").write_text(WHO, encoding="utf-8")

    def run(*command, plugins="none", **variables):
        put(processes.folder / "srun", SRUN)
        srun = {
            "PATH": f"{processes.folder}:{os.environ['PATH']}",
            "PLUGINS": plugins,
            "CONNECTS": str(find_mpiexec()),
        }
        job = {"SLURM_JOB_ID": "77", "SLURM_JOB_NUM_NODES": "1", "SLURM_JOB_CPUS_PER_NODE": "2"}
        return processes.run([*command], {**srun, **job, **variables})

    return run


MINIGRAD = [sys.executable, "-m", "backends"]
STARTS = {"none pmi2": "srun", "none": "mpiexec"}
connecting = pytest.mark.skipif(mpiexec_vendor() != "MPICH", reason="srun --mpi=pmi2 is for MPICH")


@pytest.mark.parametrize("plugins", [pytest.param("none pmi2", marks=connecting), "none"])
def test_in_a_job_minigrad_starts_ranks_that_know_one_another(job, plugins):
    done = job(*MINIGRAD, "run", "-n", "2", "who.py", plugins=plugins)
    start, *ranks = done.out.splitlines()
    assert done.status == 0 and start.startswith(f"in Slurm job 77: {STARTS[plugins]} "), done.err
    assert sorted(ranks) == ["rank 0 of 2", "rank 1 of 2"]


@pytest.mark.parametrize(
    "plugins", [pytest.param("none pmi2", marks=connecting), pytest.param("none", marks=pytest.mark.thorough)]
)
def test_in_a_job_a_command_starts_its_ranks(job, plugins):
    done = job(*MINIGRAD, "prove", "--data", "2", "--net", "mlp", plugins=plugins)
    start = f"in Slurm job 77: {STARTS[plugins]} "
    assert done.status == 0 and start in done.out and "PROVED" in done.out, done.err


def refused_after_start(done):
    lines = [line for line in done.err.splitlines() if line.startswith("minigrad")]
    assert done.status != 0 and len(lines) == 1 and "leave srun out" in lines[0], done.err
    assert "rank 0 of 1" not in done.out


def test_in_a_job_with_fewer_cpus_ranks_are_refused(job):
    done = job(*MINIGRAD, "run", "-n", "3", "who.py")
    assert done.status == 1
    assert done.err == (
        "minigrad: 3 ranks need 3 CPUs, and Slurm job 77 has 2; start 2, or give sbatch or salloc -n 3\n"
    )


def test_a_srun_that_the_user_told_not_to_connect_is_refused(job):
    refused_after_start(job(*MINIGRAD, "run", "-n", "2", "who.py", SLURM_MPI_TYPE="none"))


def test_tasks_of_srun_without_pmi_are_refused_and_with_it_are_ranks(job):
    for command in ([*MINIGRAD, *TRAIN], [sys.executable, "-m", "mpi4py", "who.py"]):
        refused_after_start(job("./srun", "-n", "2", *command))
    if mpiexec_vendor() == "MPICH":
        prove = ["prove", "--data", "2", "--net", "mlp"]
        done = job("./srun", "--mpi=pmi2", "-n", "2", *MINIGRAD, *prove, plugins="none pmi2")
        assert done.status == 0 and done.out.count("PROVED") == 1 and "starting" not in done.out, done.err


def test_the_one_task_of_a_srun_starts_its_own_ranks(job):
    done = job("./srun", "-n", "1", *MINIGRAD, "run", "-n", "2", "who.py")
    assert done.status == 0 and sorted(done.out.splitlines()) == ["rank 0 of 2", "rank 1 of 2"], done.err
