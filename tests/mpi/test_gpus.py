"""MPI processes on GPUs, without one: a double of CuPy computes on the host, where MPI reads its memory."""

import pytest

from tests.backends.gpu_laws import LATE, TWO
from tests.double import needs_double

pytestmark = needs_double

AWARE = {"MINIGRAD_CUDA_AWARE": "1"}
STAGED = {"MINIGRAD_CUDA_AWARE": "0"}

LAWS = """
from backends.comm.mpi import MPIComm
from tests.mpi import gpu_laws
comm = MPIComm()
gpu_laws.messages_are_those_of_finished_kernels()
gpu_laws.strategies_are_proved(comm, gpu_laws.TWO_RANKS if comm.size == 2 else gpu_laws.EIGHT_RANKS)
"""

HUNT = """
from tests.bugs.bug import hunt
from tests.mpi.gpu_laws import BUGS
for bug in BUGS:
    hunt(bug)
"""

BUFFERS = """
from tests.bugs.bug import hunt
from tests.mpi.gpu_laws import BUGS_OF_BUFFERS
for bug in BUGS_OF_BUFFERS:
    hunt(bug)
"""


@pytest.mark.parametrize(
    ("ranks", "way"),
    [
        (2, AWARE),
        pytest.param(2, STAGED, marks=pytest.mark.double),
        pytest.param(8, STAGED, marks=pytest.mark.thorough),
    ],
)
def test_strategies_are_proved_on_gpus(processes, ranks, way):
    job = processes.ranks(ranks, LAWS, **TWO, **LATE, **way)
    assert job.status == 0, job.err


@pytest.mark.double
@pytest.mark.parametrize("ranks", [2, 3])
def test_the_law_of_buffers_holds_and_catches_its_bugs(processes, ranks):
    job = processes.ranks(ranks, BUFFERS, **TWO, **LATE, **STAGED)
    assert job.status == 0, job.err


@pytest.mark.double
def test_the_law_of_messages_catches_its_bugs(processes):
    job = processes.ranks(2, HUNT, **TWO, **LATE, **AWARE)
    assert job.status == 0, job.err
