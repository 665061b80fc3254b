"""What staleness costs on MNIST: serial < 2BW < stashing < vertical sync, and without a stash it diverges.

The orders of ``benchmarks/pipeline_versions.py``, with a quarter of the images. All but the last are trained
by the serial loops that the pipelines equal bit for bit.
"""

import runpy
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from minigrad import ops, optim
from minigrad.data import minibatches
from tests.backends.stale_training import train_stale

BENCHMARK = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "pipeline_versions.py"))
STAGES, RATE, EPOCHS, SEEDS, SIZE = 8, 0.05, 5, 3, 20


def train_loss(rule, data, seed):
    bounds = (0, 15) if rule == "serial" else (*range(0, 15, 2), 15)
    batches = [b for epoch in range(EPOCHS) for b in minibatches(data, SIZE, seed=seed, epoch=epoch)]
    model = BENCHMARK["mlp"](STAGES, seed)
    run = train_stale(
        "2bw" if rule == "serial" else rule,
        bounds,
        lambda _: BENCHMARK["mlp"](STAGES, seed),
        batches,
        lambda parameters: optim.SGD(parameters, RATE),
        micros=STAGES if rule == "2bw" else 1,
    )
    model.load_state_dict(run.weights[-1])
    return ops.cross_entropy(model(data.x), data.y).item()


# Weights overwritten by later versions diverge.
@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning", "ignore:invalid value:RuntimeWarning")
def test_staler_weights_train_worse_and_overwritten_ones_not_at_all():
    data = BENCHMARK["training_set"](1000)
    with threadpool_limits(1):
        serial, late, stashed, vertical = (
            np.mean([train_loss(rule, data, seed) for seed in range(SEEDS)])
            for rule in ("serial", "2bw", "stashing", "vertical")
        )
    live = np.mean(
        [BENCHMARK["train_loss"]("no_stash", data, STAGES, RATE, EPOCHS, seed, SIZE) for seed in range(SEEDS)]
    )
    assert serial < late < stashed < vertical < live  # 0.3, 0.7, 1.3, 2.0, infinite
