"""Laws of backends/comm/mpi_collectives.py: the definition of each of MPI's own calls, on groups,
traced and on GPUs, and their bugs.
"""

from pathlib import Path

import pytest
from hypothesis import settings

from backends.comm.collectives import ALLREDUCES
from tests.backends.gpu_laws import LATE, TWO
from tests.double import needs_double

LAWS = """
from backends.comm.trace import Traced
from tests.mpi import collective_laws
collective_laws.laws_hold(comm, examples=EXAMPLES)
group = comm.split(comm.rank % 2, key=-comm.rank)
for one in (Traced(comm), group, comm.split(comm.rank)):
    collective_laws.laws_hold(one, examples=5)
collective_laws.collectives_are_counted_once(comm)
collective_laws.allreduces_by_name_sum(comm)
"""

HUNT = """
from tests.bugs.bug import hunt
from tests.mpi.collective_laws import BUGS
for bug in BUGS[::STEP]:
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


@pytest.mark.parametrize("n", [2, 3, *(pytest.param(n, marks=pytest.mark.thorough) for n in (1, 4))])
def test_each_is_what_it_is_called(pool, n):
    pool.run(n, LAWS.replace("EXAMPLES", str(settings().max_examples)))


@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.thorough)])
def test_the_laws_catch_the_bugs(processes, step):
    job = processes.ranks(3, HUNT.replace("STEP", str(step)), MINIGRAD_TIMEOUT="20")
    assert job.status == 0, job.err
    assert job.out.count("caught") == 3


HALF = """
import numpy as np
from backends.comm import collectives
from backends.comm.mpi import MPIComm
from tests.backends.comm.collectives import half_laws
for kind in half_laws.KINDS:
    for n in (0, 7, 40_000):
        terms = half_laws.numbers(kind, comm.size, n, 0)
        for name, allreduce in collectives.ALLREDUCES.items():
            if name == "default" or n == 7:
                half_laws.all_reduce_16_bounded(allreduce, comm, terms)
        half_laws.reductions_are_bounded(comm, terms)
        half_laws.what_moves_keeps_its_bits(comm, terms)

class Counted(MPIComm):
    nbytes = 0

    def post(self, first, rest, to, tag):
        self.nbytes += 0 if rest is None else rest.nbytes
        return super().post(first, rest, to, tag)

counted, n = Counted(comm.mpi), 40_000
assert counted.allreduce(np.ones(n, np.float16))[0] == comm.size
sent = sum(map(int, comm.collective(collectives.allgather, np.array(counted.nbytes))))
assert sent == 2 * (comm.size - 1) * 2 * n, sent
"""


@pytest.mark.parametrize("n", [2, 3])
def test_sums_of_16_bits_are_bounded(pool, n):
    """MPI has no sum of float16: ours sends 16 bits."""
    pool.run(n, HALF)


@needs_double
def test_arrays_on_gpus_pass_through_the_host(processes):
    job = processes.ranks(2, ON_GPUS, **TWO, **LATE)
    assert job.status == 0, job.err
    assert job.out.count("fine") == 2


@pytest.mark.parametrize(
    "n", [pytest.param(1, marks=pytest.mark.thorough), pytest.param(2, marks=pytest.mark.thorough), 3]
)
def test_the_program_of_lesson_05_in_plain_mpi4py(processes, n):
    program = Path(__file__).parents[2] / "lessons" / "05_messages" / "plain_mpi4py.py"
    job = processes.minigrad("run", "-n", str(n), str(program))
    assert job.status == 0, job.err
    assert job.out.count("a sum in Fortran order: 4 of 6 numbers wrong") == n


PROVE = """
from backends.cli.parallel import ParallelConfig
from backends.cli.proof import Proof
from backends.comm.collectives import ALLREDUCES
for name in ALLREDUCES:
    verdict = Proof(ParallelConfig("replicated", {"allreduce": name}, data=2), net="mlp").run(comm)
    assert verdict is None or verdict["passed"], name
"""


def test_every_allreduce_by_name_is_proved(pool):
    pool.run(2, PROVE)


@pytest.mark.parametrize(
    "name",
    [name if name == "ring" else pytest.param(name, marks=pytest.mark.thorough) for name in ALLREDUCES],
)
def test_prove_takes_every_allreduce_by_name(processes, name):
    job = processes.minigrad(
        "prove", "--data", "2", "--net", "mlp", "--transport", "mpi", "--allreduce", name
    )
    assert job.status == 0, job.out + job.err
