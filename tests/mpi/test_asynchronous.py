"""Pipelines without a flush over real MPI: bit for bit the serial loops with older weights."""

import pytest

JOB = """
from backends.pipeline.asynchronous import AsynchronousPipeline
from tests.backends.pipeline.stale_training import OPTIMIZERS, TRAINED
from tests.backends.pipeline.stale_training import batches_of, build, follows, train_stale

bounds = (0, *TRAINED[6 - comm.size :], 9)
for versions in ("stashing", "2bw", "vertical"):
    micros = comm.size + 1 if versions == "2bw" else 1
    batches, make = batches_of((4, 4, 1, 3, 300, 300, 4)), OPTIMIZERS["momentum"]
    run = train_stale(versions, bounds, build, batches, make, micros=micros)
    strategy = lambda comm: AsynchronousPipeline(comm, bounds, versions=versions, micro_batches=micros)
    follows(strategy, comm, versions, run, build, batches, make, look=4)
"""


@pytest.mark.parametrize("n", [2, 3])
def test_trains_as_the_serial_loop_with_older_weights(pool, n):
    pool.run(n, JOB)
