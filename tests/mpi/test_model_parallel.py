"""Split models over real MPI: neurons on 2 ranks, data by model on 4, data by layers by model on 8."""

import json

import pytest

SPLIT = """
import numpy as np
from backends.data_parallel import DataParallel
from backends.grid import Grid
from backends.laws import trains_like_serial
from backends.pipeline.layer_wise import LayerWise
from backends.model_parallel.model_parallel import ModelParallel
from backends.stack import Stack
from minigrad import nn, ops, optim
from minigrad.data import Batch

data, pipe, model = (int(n) for n in GRID)
grid = Grid(comm, data=data, pipe=pipe, model=model)
rng = np.random.default_rng(0)
batches = [Batch(rng.normal(size=(n, 2, 4, 4)), rng.integers(0, 3, n)) for n in (5, 1, 4)]


def build(rng):
    return nn.Sequential(
        nn.Conv2d(2, 5, 3, padding=1, rng=rng), nn.Tanh(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(20, 7, rng=rng), nn.Tanh(), nn.Linear(7, 3, rng=rng),
    )


def clipped(parameters):
    return optim.SGD(parameters, 0.5, momentum=0.9).clipped(0.05)


def stack(plan):
    layers = [LayerWise(grid.pipe)] if pipe > 1 else []
    return Stack(DataParallel(grid.data), *layers, ModelParallel(grid.model, plan, batch_size=2))


for plan in (
    {"4": "column", "6": "row"},
    {"0": "filters", "4": "row", "6": "classes"},
    {"0": "rows", "1": "rows", "2": "rows"},
    {"4": "grid", "6": "grid"},
    None,
):
    trains_like_serial(lambda _: stack(plan), comm, build, ops.cross_entropy, batches, optimizer=clipped)
"""


@pytest.mark.parametrize("grid", ["112", "121", "212", "222"])
def test_a_split_model_trains_like_serial(pool, grid):
    ranks = int(grid[0]) * int(grid[1]) * int(grid[2])
    pool.run(ranks, SPLIT.replace("GRID", repr(grid)))


TRANSFORMER = """
from tests.backends.model_parallel.transformer_laws import FORMS, TOKEN_LOSS, Net, adamw
from backends.data_parallel import DataParallel
from backends.grid import Grid
from backends.laws import trains_like_serial
from backends.model_parallel import ModelParallel
from backends.stack import Stack

data, model = (int(n) for n in GRID)
grid, net = Grid(comm, data=data, model=model), Net(heads=3, tokens=5, symbols=7)
for form in FORMS.values():
    split = lambda: ModelParallel(grid.model, net.plan(vocabulary=True), micro_batches=2, **form)
    stack = lambda _: Stack(DataParallel(grid.data), split())
    trains_like_serial(stack, comm, net.build, TOKEN_LOSS, net.batches(7, 5, 1), optimizer=adamw)
"""


@pytest.mark.parametrize("grid", ["12", "13", "22"])
def test_a_split_transformer_trains_like_serial(pool, grid):
    pool.run(int(grid[0]) * int(grid[1]), TRANSFORMER.replace("GRID", repr(grid)))


PROVE = """
from backends.cli.parallel import ParallelConfig
from backends.cli.proof import Proof
verdict = Proof(ParallelConfig("replicated", data=2, model=2)).run(comm)
assert verdict is None or verdict["passed"] and verdict["config"]["plan"] == {"7": "row", "9": "row"}, verdict
"""


def test_data_by_model_is_proved_with_the_default_plan(pool):
    pool.run(4, PROVE)


@pytest.mark.thorough
def test_prove_data_by_model(processes):
    job = processes.minigrad("prove", "--data", "2", "--model", "2", "--transport", "mpi", "--json", "p.json")
    assert job.status == 0, job.err
    proof = json.loads((processes.folder / "p.json").read_text(encoding="utf-8"))
    assert "PROVED" in job.out and proof["passed"]
    assert proof["config"]["plan"] == {"7": "row", "9": "row"}
