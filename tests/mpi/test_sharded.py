"""Sharded training over real MPI: as serial training, in every stage, with and without overlap."""

import pytest

SHARDED = """
import numpy as np

from backends.data_parallel.zero.sharded import Sharded
from backends.laws import trains_like_serial
from minigrad import nn, ops, optim
from minigrad.data import Batch

rng = np.random.default_rng(0)
batches = [Batch(rng.normal(size=(n, 1, 4, 4)), rng.integers(0, 3, n)) for n in (9, 2, 1, 9)]


def build(rng):
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1, rng=rng),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(12, 101, rng=rng),
        nn.Tanh(),
        nn.Linear(101, 3, rng=rng),
    )


def clipped(parameters):
    return optim.Adam(parameters, 0.05, weight_decay=0.01).clipped(0.5)


for stage in (1, 2, 3):
    for overlap in (False, True):
        for micro_batches in (1, 2):
            trains_like_serial(
                lambda comm: Sharded(
                    comm, stage=stage, overlap=overlap, micro_batches=micro_batches, bucket_bytes=4000
                ),
                comm,
                build,
                ops.cross_entropy,
                batches,
                optimizer=clipped,
                zero_every=micro_batches,  # gradients of steps add up
                update_every=micro_batches,
            )
"""


@pytest.mark.parametrize("n", [2, 3, pytest.param(4, marks=pytest.mark.thorough)])
def test_trains_like_serial(pool, n):
    pool.run(n, SHARDED)
