"""Laws of backends/expert_parallel/ over real MPI: ranks that share experts train like one machine, alone and
in stacks, and send what closed forms say.
"""

import pytest

EXPERTS = """
from backends.comm.communicator import Communicator
from backends.data_parallel import DataParallel
from backends.expert_parallel import ExpertParallel
from backends.expert_parallel.naive import NaiveExpertParallel
from backends.grid import Grid
from backends.laws import trains_like_serial
from backends.pipeline import Pipeline
from backends.stack import Stack
from tests.backends.expert_parallel.expert_laws import LOSS, Net, batches_of, clipped


def staged(comm):
    grid = Grid(comm, data=2, pipe=2)
    return Stack(ExpertParallel(grid.data), Pipeline(grid.pipe, micro_batches=2))


def outer(comm):
    data = comm.split(comm.rank % 2, comm.rank // 2)
    return Stack(DataParallel(data), ExpertParallel(comm.split(comm.rank // 2, comm.rank % 2)))


strategies = [ExpertParallel, NaiveExpertParallel] + ([staged, outer] if comm.size == 4 else [])
for strategy in strategies:
    for net in (Net(), Net(experts=2, choices=1, capacity=0.25)):
        trains_like_serial(strategy, comm, net.build, LOSS, batches_of([7, 1]), optimizer=clipped)
"""


@pytest.mark.parametrize("n", [2, pytest.param(4, marks=pytest.mark.thorough)])
def test_trains_like_serial(pool, n):
    pool.run(n, EXPERTS)
