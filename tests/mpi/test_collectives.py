"""MPI's own collective calls: the definition of each, on groups, traced and on GPUs, and their bugs."""

from pathlib import Path

import pytest

from backends.comm.collectives import ALLREDUCES
from tests.backends.gpu_laws import LATE, TWO
from tests.double import needs_double

LAWS = """
from backends.comm.mpi import MPIComm
from backends.comm.trace import Traced
from tests.mpi import collective_laws
comm = MPIComm()
collective_laws.laws_hold(comm)
group = comm.split(comm.rank % 2, key=-comm.rank)
for one in (Traced(comm), group, comm.split(comm.rank)):
    collective_laws.laws_hold(one, examples=5)
collective_laws.collectives_are_counted_once(comm)
collective_laws.allreduces_by_name_sum(comm)
comm.close()
print("fine")
"""

HUNT = """
from tests.bugs.bug import hunt
from tests.mpi.collective_laws import BUGS
for bug in BUGS:
    hunt(bug)
print("caught")
"""

ON_GPUS = """
from backends.comm.mpi import MPIComm
from minigrad.device import use_gpu_of
from tests.mpi import collective_laws
comm = MPIComm()
use_gpu_of(comm.local_rank)
collective_laws.laws_hold(comm, "cupy", examples=20)
comm.close()
print("fine")
"""


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_each_is_what_it_is_called(processes, n):
    job = processes.ranks(n, LAWS)
    assert job.status == 0, job.err
    assert job.out.count("fine") == n


def test_the_laws_catch_the_bugs(processes):
    job = processes.ranks(3, HUNT, MINIGRAD_TIMEOUT="20")
    assert job.status == 0, job.err
    assert job.out.count("caught") == 3


@needs_double
def test_arrays_on_gpus_pass_through_the_host(processes):
    job = processes.ranks(2, ON_GPUS, **TWO, **LATE)
    assert job.status == 0, job.err
    assert job.out.count("fine") == 2


@pytest.mark.parametrize("n", [1, 2, 3])
def test_the_program_of_lesson_05_in_plain_mpi4py(processes, n):
    program = Path(__file__).parents[2] / "lessons" / "05_messages" / "plain_mpi4py.py"
    job = processes.minigrad("run", "-n", str(n), str(program))
    assert job.status == 0, job.err
    assert job.out.count("a sum in Fortran order: 4 of 6 numbers wrong") == n


@pytest.mark.parametrize("name", ALLREDUCES)
def test_prove_takes_every_allreduce_by_name(processes, name):
    job = processes.minigrad("prove", "--data", "2", "--transport", "mpi", "--allreduce", name)
    assert job.status == 0, job.out + job.err
