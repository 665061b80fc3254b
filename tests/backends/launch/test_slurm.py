"""Laws of backends/launch/slurm.py and launch.py: in a Slurm job ranks are started by a srun that
connects them, else by mpiexec.
"""

import sys

import pytest

from backends.cli import doctor
from backends.launch import launch, slurm

MPICH, OPEN_MPI, CRAY = "MPICH Version: 5.0.2", "Open MPI v5.0.11", "MPI VERSION : CRAY MPICH version 8.1"
LIST = """MPI plugin types are...
	pmix
	none
	cray_shasta
	pmi2
specific pmix plugin versions available: pmix_v4
"""
OLD_LIST = "srun: MPI types are...\nsrun: none\nsrun: pmi2\n"
NONE = "MPI plugin types are...\n\tnone\n"
CONFIGURATION = "MinJobAge               = 300 sec\nMpiDefault              = none\n"


@pytest.fixture
def job(monkeypatch, tmp_path):
    """Puts this process in a job, whose srun prints the list that is given, with the MPI that is given."""
    (tmp_path / "srun").write_text(f'#!/bin/sh\ncat "{tmp_path}/list"\n', encoding="utf-8")
    (tmp_path / "scontrol").write_text(f"#!/bin/sh\necho '{CONFIGURATION}'\n", encoding="utf-8")
    for name in ("srun", "scontrol"):
        (tmp_path / name).chmod(0o755)

    def put(library, plugins, **variables):
        (tmp_path / "list").write_text(plugins, encoding="utf-8")
        monkeypatch.setattr(slurm, "mpi_library", lambda: library)
        defaults = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "1", "SLURM_JOB_CPUS_PER_NODE": "4"}
        for name in ("SLURM_STEP_ID", "SLURM_MPI_TYPE", *launch.THREAD_VARIABLES):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        for name, value in (defaults | variables).items():
            monkeypatch.setenv(name, value)

    return put


@pytest.mark.parametrize(
    ("library", "plugins", "variables", "mpiexec", "started"),
    [
        (MPICH, LIST, {}, True, "--mpi=pmi2"),
        (MPICH, OLD_LIST, {}, True, "--mpi=pmi2"),
        (MPICH, NONE, {}, True, None),
        (MPICH, NONE, {}, False, "srun"),
        (MPICH, NONE, {"SLURM_MPI_TYPE": "none"}, True, "srun"),
        (MPICH, LIST, {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "1"}, True, None),
        (OPEN_MPI, LIST, {}, True, None),
        (OPEN_MPI, LIST, {}, False, "--mpi=pmix"),
        (CRAY, LIST, {}, True, "--mpi=cray_shasta"),
        ("", LIST, {}, True, None),
    ],
)
def test_what_starts_ranks(job, monkeypatch, library, plugins, variables, mpiexec, started):
    job(library, plugins, **variables)
    monkeypatch.setattr(launch, "find_mpiexec", lambda: "/opt/mpiexec" if mpiexec else None)
    command, set_to = launch.start_line(2, ["who.py"], survive=False)
    assert command[-6:] == ["-n", "2", sys.executable, "-m", "backends.process.rank", "who.py"]
    assert set_to["MINIGRAD_RANKS"] == "2"
    if started is None:
        assert command[0] == "/opt/mpiexec" and set_to["HYDRA_LAUNCHER"] == "fork"
    else:
        plugin = [word for word in command if word.startswith("--mpi")]
        assert command[0] == "srun" and plugin == [started] * (started != "srun")


def test_ranks_that_may_be_killed_are_started_by_mpiexec(job, monkeypatch):
    job(MPICH, LIST)
    monkeypatch.setattr(launch, "find_mpiexec", lambda: "/opt/mpiexec")
    monkeypatch.setattr(launch, "mpiexec_vendor", lambda: "MPICH")
    assert launch.start_line(2, ["who.py"], survive=True)[0][0] == "/opt/mpiexec"


@pytest.mark.parametrize("plugins", [NONE, LIST])
def test_an_mpiexec_for_several_nodes_finds_them_by_slurm(job, monkeypatch, plugins):
    """Also where srun has pmi2, which cannot carry all addresses of MPICH between nodes."""
    job(MPICH, plugins, SLURM_JOB_NUM_NODES="2", SLURM_JOB_CPUS_PER_NODE="4(x2)")
    monkeypatch.setattr(launch, "find_mpiexec", lambda: "/opt/mpiexec")
    command, variables = launch.start_line(8, ["who.py"], survive=False)
    assert command[0] == "/opt/mpiexec" and variables["SLURM_MPI_TYPE"] == "none"
    assert not slurm.LOCAL.keys() & variables.keys()


def test_ranks_on_several_nodes_set_their_threads_themselves(job, monkeypatch):
    job(MPICH, LIST, SLURM_JOB_NUM_NODES="2", SLURM_JOB_CPUS_PER_NODE="4(x2)")
    monkeypatch.setattr(launch, "find_mpiexec", lambda: None)
    _, variables = launch.start_line(8, ["who.py"], survive=False)
    assert not set(launch.THREAD_VARIABLES) & variables.keys()
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert launch.start_line(8, ["who.py"], survive=False)[1]["OMP_NUM_THREADS"] == "3"


def test_more_ranks_than_the_job_has_cpus_are_refused(job):
    job(MPICH, LIST, SLURM_JOB_NUM_NODES="3", SLURM_JOB_CPUS_PER_NODE="2(x2),3")
    result = slurm.find_job()
    assert result is not None and result == ("7", 3, 7)
    result.check(7)
    with pytest.raises(
        ValueError, match="8 ranks need 8 CPUs, and Slurm job 7 has 7; start 7, or give sbatch"
    ):
        launch.start_line(8, ["who.py"], survive=False)


def test_a_task_keeps_the_cpus_that_sbatch_gave_it(job):
    job(MPICH, LIST, SLURM_CPUS_PER_TASK="2")
    result = slurm.find_job()
    assert (
        result is not None
        and result.variables(2) == {"SRUN_CPUS_PER_TASK": "2"}
        and result.variables(3) == {}
    )


def test_one_task_of_srun_starts_ranks_here_without_what_connects_it(job, monkeypatch):
    monkeypatch.setenv("PMIX_MCA_gds", "hash")
    connected = {"PMI_RANK": "0", "PMI_SIZE": "1", "PMIX_NAMESPACE": "slurm.pmix.1.0"}
    job(MPICH, LIST, SLURM_STEP_ID="0", SLURM_STEP_NUM_TASKS="1", **connected)
    variables = launch.environment(2)
    assert not connected.keys() & variables.keys() and variables["PMIX_MCA_gds"] == "hash"
    assert variables["HYDRA_LAUNCHER"] == "fork"


@pytest.mark.parametrize(
    ("variables", "row"),
    [
        (
            {},
            "in job 7: 1 node, 4 CPUs; srun offers pmix, none, cray_shasta, pmi2, MpiDefault is none; "
            "ranks are started by srun --mpi=pmi2",
        ),
        ({"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "1"}, "in a step of 1 task; "),
        ({"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2"}, "in a step of 2 tasks; "),
    ],
)
def test_the_doctor_says_what_minigrad_does_in_the_job(job, variables, row):
    job(MPICH, LIST, **variables)
    (finding,) = doctor.in_slurm()
    assert finding.what == "Slurm" and finding.state.startswith(row)


def test_the_doctor_says_what_is_wrong_with_a_world(job):
    job(MPICH, LIST, SLURM_STEP_ID="0", SLURM_STEP_NUM_TASKS="2")
    assert "write srun --mpi=pmi2" in next(doctor.ranks()).remedy


def test_the_doctor_without_slurm(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert next(doctor.in_slurm()).state == "no srun on this machine"
