"""Laws of backends/pipeline/asynchronous.py and weight_stash.py: staleness costs on MNIST that serial <
2BW < stashing < vertical sync; without a stash it diverges.

The orders of ``benchmarks/pipeline_versions.py``, with a part of the images. All but the last are trained
by the serial loops that the pipelines equal bit for bit.
"""

import runpy
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from minigrad import ops, optim
from minigrad.data import minibatches
from tests.backends.lanes import thorough
from tests.backends.pipeline.stale_training import train_stale

BENCHMARK = runpy.run_path(str(Path(__file__).parents[3] / "benchmarks" / "pipeline_versions.py"))
STAGES, RATE, SEEDS, SIZE = 8, 0.05, 3, 20


def train_loss(rule, data, epochs, seed):
    bounds = (0, 15) if rule == "serial" else (*range(0, 15, 2), 15)
    batches = [b for epoch in range(epochs) for b in minibatches(data, SIZE, seed=seed, epoch=epoch)]
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
@pytest.mark.parametrize(("images", "epochs"), [(150, 8), thorough(1000, 5)])
def test_staler_weights_train_worse_and_overwritten_ones_not_at_all(images, epochs):
    data = BENCHMARK["training_set"](images)
    with threadpool_limits(1):
        serial, late, stashed, vertical = (
            np.mean([train_loss(rule, data, epochs, seed) for seed in range(SEEDS)])
            for rule in ("serial", "2bw", "stashing", "vertical")
        )
    live = np.mean(
        [BENCHMARK["train_loss"]("no_stash", data, STAGES, RATE, epochs, seed, SIZE) for seed in range(SEEDS)]
    )
    # Of 1,000 images 0.3, 0.7, 1.3, 2.0 and infinite; of 150 images 0.8, 1.1, 1.7, 2.0 and more than 9.
    assert serial < late < stashed < vertical < live
