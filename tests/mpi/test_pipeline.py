"""Pipelines over real MPI: every schedule as serial training, and data by stages by neurons on 8 ranks."""

import pytest

COMMON = """
import numpy as np
from backends.laws import trains_like_serial
from backends.pipeline.pipeline import Pipeline
from backends.pipeline.schedules import SCHEDULES
from minigrad import nn, ops, optim
from minigrad.serial import Serial
from minigrad.data import Batch

rng = np.random.default_rng(0)


def batches_of(*sizes):
    x = [rng.normal(size=(n, 4, 4, 2)).transpose(0, 3, 1, 2) for n in sizes]
    return [Batch(images, rng.integers(0, 3, len(images))) for images in x]


def build(rng, wide=7):
    model = nn.Sequential(
        nn.Conv2d(2, 5, 3, padding=1, rng=rng), nn.Tanh(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(20, wide, rng=rng), nn.Tanh(), nn.Linear(wide, wide, rng=rng), nn.Tanh(),
        nn.Linear(wide, wide, rng=rng), nn.Linear(wide, 3, rng=rng),
    )
    model[8].weight = model[6].weight  # on two ranks, with most bounds
    return model


def clipped(parameters):
    return optim.SGD(parameters, 0.5, momentum=0.9).clipped(0.05)
"""

SCHEDULES = (
    COMMON
    + """
both = ("chimera", "dualpipe")  # which need an even number of ranks


def defined(schedule, ranks, micros):
    try:
        schedule.of(ranks, micros)
    except ValueError:
        return False
    return True


done = []
for name, schedule in SCHEDULES.items():
    micros = next((m for m in (4, 6, 8) if defined(schedule, comm.size, m)), None)
    for recompute in RECOMPUTE if micros else ():
        trains_like_serial(
            lambda comm: Pipeline(comm, name, micro_batches=micros, recompute=recompute),
            comm,
            build,
            ops.cross_entropy,
            batches_of(13, 13, 3),
            optimizer=clipped,
            serial=Serial(micros),
        )
        done.append(name)

# Large messages, whose memory MPI writes while the rank computes: more than goes in one piece.
trains_like_serial(
    lambda comm: Pipeline(comm, "1f1b", micro_batches=5),
    comm,
    lambda rng: build(rng, wide=500),
    ops.cross_entropy,
    batches_of(200, 200, 77),
    serial=Serial(5),
)
assert set(done) == {name for name in SCHEDULES if comm.size % 2 == 0 or name not in both}
"""
)

GRID = (
    COMMON
    + """
from backends.data_parallel.bucketed import Bucketed
from backends.data_parallel.zero.sharded import Sharded
from backends.grid import Grid
from backends.model_parallel.model_parallel import ModelParallel
from backends.stack import Stack

grid = Grid(comm, data=2, pipe=2, model=2)
for name, plan, data in (
    ("1f1b", {"4": "column", "9": "row"}, lambda: Bucketed(grid.data, bucket_bytes=1000, progress="thread")),
    ("zb-h1", {"0": "filters", "9": "classes"}, lambda: Sharded(grid.data, stage=2)),
    ("interleaved", {"0": "rows", "1": "rows", "2": "rows"}, lambda: Bucketed(grid.data, micro_batches=2)),
    ("chimera", {"4": "row"}, lambda: Bucketed(grid.data, bucket_bytes=1000, progress="thread")),
):
    trains_like_serial(
        lambda _: Stack(data(), Pipeline(grid.pipe, name, micro_batches=4), ModelParallel(grid.model, plan)),
        comm,
        build,
        ops.cross_entropy,
        batches_of(13, 1, 6),
        optimizer=clipped,
    )
"""
)


LAST_DIGITS = """
from tests.backends.pipeline.pipeline_laws import all_three_axes_train_like_serial

for traced in (False, True):
    all_three_axes_train_like_serial(comm, traced=traced)
"""


@pytest.mark.parametrize(
    ("n", "recompute"),
    [
        (2, (True,)),
        (3, (False,)),
        *(
            pytest.param(n, (recompute,), marks=pytest.mark.thorough)
            for n, recompute in ((2, False), (3, True), (4, True), (4, False))
        ),
    ],
)
def test_every_schedule_trains_like_serial(pool, n, recompute):
    pool.run(n, SCHEDULES.replace("RECOMPUTE", str(recompute)))


@pytest.mark.thorough  # the next one is the quick lane's with three axes
def test_data_by_stages_by_neurons(pool):
    pool.run(8, GRID)


def test_all_three_axes_to_the_last_digits(pool):
    pool.run(8, LAST_DIGITS)
