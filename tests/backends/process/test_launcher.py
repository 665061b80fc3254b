"""Laws of backends/process/launcher.py, cores.py and backends/launch/launch.py: a process trains only in a
world that MPI, its launcher and what was asked for agree upon.
"""

import os
import subprocess
import sys
from contextlib import contextmanager
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import threadpool_info, threadpool_limits

from backends.launch import launch
from backends.process import launcher
from tests.bugs.mutant import mutant

FAMILIES = {names[0]: names for names in launcher.VARIABLES}
STEP = ("SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID")
ALL = (*launcher.RANK_VARIABLES, *launcher.SIZE_VARIABLES, *STEP, launcher.RANKS, "PMI_FD", "PMIX_NAMESPACE")


@contextmanager
def environment(**variables):
    """Set these variables only, of those that the launchers have."""
    with patch.dict(os.environ):
        for name in ALL:
            os.environ.pop(name, None)
        os.environ.update({name: str(value) for name, value in variables.items()})
        yield


SUPERSCRIPT = os.fsdecode("²".encode())  # a digit, and no decimal; in whatever encoding the variables have
numbers = st.integers(0, 4).map(str) | st.sampled_from(["", "abc", "-1", "1.5", SUPERSCRIPT, "0x1"])
surroundings = st.dictionaries(st.sampled_from([*ALL[:-2]]), numbers)


@given(variables=surroundings, size=st.integers(1, 4), ranks=st.none() | st.integers(1, 4))
def test_what_is_accepted_is_what_all_say(variables, size, ranks):
    """Whatever is set: either one line of error, or nothing contradicts MPI's world."""
    with environment(**variables):
        try:
            launcher.check_world(size, ranks)
        except launcher.WorldError as error:
            assert "\n" not in str(error) and any(word in str(error) for word in ("unset", "srun", "ask"))
            return
        here = launcher.launcher()
        tasks = launcher.step_tasks()
    said = {name: int(variables[name]) for name in variables if name in launcher.SIZE_VARIABLES}
    mine = next((names for rank, names in FAMILIES.items() if {*names} & variables.keys()), ())
    if here is not None:
        assert here.size in (None, size) and all(said[name] == size for name in mine if name in said)
        assert here.size is None or 0 <= here.rank < size
    else:
        assert tasks in (None, 0, 1) and all(said[name] == 1 for name in mine if name in said)
    assert ranks in (None, size)
    assert ranks is not None or variables.get(launcher.RANKS, str(size)) == str(size)


@given(
    family=st.sampled_from(sorted(FAMILIES)),
    size=st.integers(2, 5),
    rank=st.integers(0, 4),
    tasks=st.booleans(),
    ranks_in_environ=st.booleans(),
)
def test_a_world_in_which_all_agree_is_accepted(family, size, rank, tasks, ranks_in_environ):
    rank %= size
    variables = dict(zip(FAMILIES[family], (rank, size), strict=False))
    if tasks:
        variables |= dict(zip(STEP, (0, size, rank), strict=True))
    if ranks_in_environ:
        variables[launcher.RANKS] = size
    with environment(**variables):
        launcher.check_world(size, size)
        here = launcher.launcher()
        assert (
            here is not None
            and here.rank == rank
            and (here.size == size or not (tasks or FAMILIES[family][1:]))
        )


def test_one_task_of_srun_may_start_ranks_but_not_the_one_rank_that_minigrad_started():
    one = dict(zip((*STEP, "PMI_RANK", "PMI_SIZE"), (0, 1, 0, 0, 1), strict=True))
    with environment(**one):
        assert launcher.launcher() is None
    with environment(**one, MINIGRAD_RANKS=1):
        assert launcher.launcher() == (0, 1, ("PMI_RANK", "PMI_SIZE"))
    with environment(MINIGRAD_RANKS=1):
        assert launcher.launcher() == (0, 1, ("MINIGRAD_RANKS",))


def test_the_shell_of_a_job_is_no_step():
    """salloc's interactive step has a number, too; batch scripts have tasks and no step."""
    for variables in ({"SLURM_STEP_ID": 0xFFFFFFFA, "SLURM_STEP_NUM_TASKS": 2}, {"SLURM_STEP_NUM_TASKS": 2}):
        with environment(**variables):
            assert launcher.step_tasks() is None and launcher.launcher() is None


def silent_alone(module):
    """Two tasks of a srun without PMI, a rank without a size, and a world of one where two were started."""
    for variables, size in (
        (dict(zip(STEP, (0, 2, 0), strict=True)), 1),
        ({"PMI_RANK": 3}, 1),
        ({"OMPI_COMM_WORLD_RANK": 0, "OMPI_COMM_WORLD_SIZE": 2}, 1),
        ({"PMI_RANK": 0, "PMI_SIZE": 2, "MINIGRAD_RANKS": 3}, 2),
        ({"PMIX_RANK": 0} | dict(zip(STEP, (0, 2, 0), strict=True)), 1),
    ):
        with environment(**variables), pytest.raises(module.WorldError):
            module.check_world(size)


def test_a_process_that_is_alone_is_refused():
    silent_alone(launcher)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("if tasks is not None and tasks > 1:", "if False:"),
        ("if rank is None or len(values) < len(names) or", "if"),
        ("if here is not None and here.size not in (None, size):", "if False:"),
        ("expected = ranks or number(RANKS)", "expected = ranks"),
        ("values.get(names[1]) if names[1:] else tasks", "values.get((*names, '')[1])"),
    ],
    ids=["srun", "half", "MPI's size", "what minigrad started", "tasks"],
)
def test_broken_copies_accept_one(right, wrong):
    with pytest.raises(pytest.fail.Exception):
        silent_alone(mutant("backends.process.launcher", (right, wrong)))


def test_threads_by_each_of_several_processes_are_refused():
    with environment(PMI_RANK=1, PMI_SIZE=2), pytest.raises(launcher.WorldError, match="do the whole work"):
        launch.choose_transport("threads", 2)
    with environment(PMI_RANK=0, PMI_SIZE=1):
        assert launch.choose_transport("threads", 1) == "threads"


@pytest.mark.parametrize(
    ("variables", "mpiexec", "library", "refused"),
    [
        ({"OMPI_COMM_WORLD_RANK": 0, "OMPI_COMM_WORLD_SIZE": 2}, "MPICH", "MPICH Version: 5.0.2", True),
        ({"OMPI_COMM_WORLD_RANK": 0, "OMPI_COMM_WORLD_SIZE": 2}, "MPICH", "MPICH --with-pmix=/usr", False),
        ({"OMPI_COMM_WORLD_RANK": 0, "OMPI_COMM_WORLD_SIZE": 2}, "Open MPI", "", False),
        ({"PMI_RANK": 0, "PMI_SIZE": 2}, "Open MPI", "Open MPI v5.0.11", True),
        ({"PMI_RANK": 0, "PMI_SIZE": 2}, "Open MPI", "Open MPI v4.1.6", False),
        ({"PMI_RANK": 0, "PMI_SIZE": 2}, "MPICH", "", False),
        ({"MINIGRAD_RANKS": 1}, "MPICH", "MPICH Version: 5.0.2", False),
    ],
)
def test_another_mpis_launcher_is_refused_before_mpi_starts(
    monkeypatch, variables, mpiexec, library, refused
):
    monkeypatch.setattr(launcher, "mpi_library", lambda: library)
    with environment(**variables):
        here = launcher.launcher()
        assert here is not None
        if refused:
            with pytest.raises(launcher.WorldError, match="another MPI's launcher"):
                launcher.check_library(here, mpiexec)
        else:
            launcher.check_library(here, mpiexec)


def test_one_process_speaks_for_all(monkeypatch, capsys):
    """The first of a srun; elsewhere any that no mpiexec ends, lest a stale variable silence it."""
    monkeypatch.setattr(launcher, "END_SECONDS", 0)
    for number, lines in ((0, 1), (1, 0)):
        with environment(**dict(zip(STEP, (0, 2, number), strict=True))):
            launcher.print_once("no")
            assert len(capsys.readouterr().err.splitlines()) == lines
    for variables in (
        {},
        {"PMI_RANK": 3},
        {"OMPI_COMM_WORLD_RANK": 1, "OMPI_COMM_WORLD_SIZE": 2, "PMI_FD": 99},
    ):
        with environment(**variables):
            launcher.print_once("no")
            assert capsys.readouterr().err == "minigrad: no\n"


# Threads of matrix products


def threads_of_products(ranks):
    counts = []
    launch.run(
        ranks, "threads", lambda comm: counts.append({pool["num_threads"] for pool in threadpool_info()})
    )
    (count,) = set().union(*counts)
    return count


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_a_rank_has_one_thread_unless_a_variable_sets_another_number(monkeypatch, ranks):
    for name in (*launch.THREAD_VARIABLES, "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    with threadpool_limits(2):
        assert threads_of_products(ranks) == 1
    for name in launch.THREAD_VARIABLES:
        monkeypatch.setenv(name, "2")
        with threadpool_limits(2):
            assert threads_of_products(ranks) == 2
        monkeypatch.delenv(name)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_the_ranks_of_a_slurm_job_share_its_cores(monkeypatch, ranks):
    for name in launch.THREAD_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    with threadpool_limits(1):
        assert threads_of_products(ranks) == max(1, launch.cores() // ranks)


SHOWN = """
import os, sys
from backends import entry
entry.load_and_run = lambda: print(os.environ["OPENBLAS_THREAD_TIMEOUT"], "numpy" in sys.modules)
entry.main()
"""


@pytest.mark.parametrize(("own", "shown"), [(None, "20"), ("26", "26")])
def test_idle_threads_sleep_soon_unless_a_variable_says_when(own, shown):
    """It is set before NumPy loads the library that reads it."""
    environ = {name: value for name, value in os.environ.items() if name != "OPENBLAS_THREAD_TIMEOUT"}
    environ |= {"OPENBLAS_THREAD_TIMEOUT": own} if own else {}
    ran = subprocess.run(
        [sys.executable, "-c", SHOWN], env=environ, timeout=60, capture_output=True, encoding="utf-8"
    )
    assert ran.stdout.split() == [shown, "False"], ran.stderr
