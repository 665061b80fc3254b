"""Images split over real processes: halos of several KB both ways, and the net trains like the serial one."""

import pytest

JOB = """
import numpy as np

from backends.laws import trains_like_serial
from backends.model_parallel.model_parallel import ModelParallel
from minigrad import nn, ops
from minigrad.data import Batch

def build(_):
    rng = np.random.default_rng(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, rng=rng), nn.BatchNorm(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 4, 5, padding=2, rng=rng), nn.Tanh(), nn.AvgPool2d(3, stride=2),
        nn.Flatten(), nn.Linear(4 * 7 * 7, 5, rng=rng),
    )

rng = np.random.default_rng(0)
batches = [Batch(rng.normal(size=(n, 3, 32, 32)), rng.integers(0, 5, n)) for n in (8, 3)]
for kind in KINDS:
    plan = dict.fromkeys("01234567", kind) | {"8": "row"}
    strategy = lambda comm: ModelParallel(comm, plan, sample=(3, 32, 32))
    trains_like_serial(strategy, comm, build, ops.cross_entropy, batches, bound=1e-11)
"""


@pytest.mark.parametrize(("n", "kinds"), [(3, ["rows"]), (4, ["tiles", "tiles 1x4"])])
def test_trains_like_serial(pool, n, kinds):
    pool.run(n, JOB.replace("KINDS", repr(kinds)))
