"""Laws of minigrad/recompute.py, backends/data_parallel/ and backends/pipeline/: laws of
minigrad/recompute.py, backends/data_parallel/ and backends/pipeline/: a model of which segments run again
is trained by every strategy like the plain one on one machine.
"""

import numpy as np
import pytest

from backends.comm import run_ranks
from backends.data_parallel import DataParallel
from backends.data_parallel.bucketed import Bucketed
from backends.data_parallel.zero.sharded import Sharded
from backends.laws import trains_like_serial
from backends.pipeline.layer_wise import LayerWise
from minigrad import nn, ops, recomputed
from minigrad.data import Batch


def convolutional(rng):
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, rng=rng), nn.BatchNorm(3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(12, 5, rng=rng), nn.Tanh(), nn.Linear(5, 3, rng=rng),
    )  # fmt: skip


@pytest.mark.parametrize(
    "strategy",
    [
        lambda comm: DataParallel(comm, batch_norm="synchronized"),
        lambda comm: Bucketed(comm, bucket_bytes=100, first_bucket_bytes=100, batch_norm="synchronized"),
        lambda comm: Sharded(comm, stage=2, bucket_bytes=100, batch_norm="synchronized"),
        lambda comm: Sharded(comm, stage=3, overlap=True, batch_norm="synchronized"),
        LayerWise,
    ],
    ids=["replicated", "bucketed", "stage 2", "stage 3", "layers"],
)
def test_ranks_train_a_recomputed_model_like_one_machine_the_plain_one(strategy):
    rng = np.random.default_rng(0)
    batches = [Batch(rng.normal(size=(n, 1, 6, 6)), rng.integers(0, 3, n)) for n in (6, 5)]
    again = lambda rng: recomputed(convolutional(rng), 3)  # noqa: E731
    run_ranks(
        2,
        lambda comm: trains_like_serial(
            strategy, comm, again, ops.cross_entropy, batches, oracle=convolutional
        ),
    )
