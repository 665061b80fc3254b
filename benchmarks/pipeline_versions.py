"""Trains a pipeline without a flush by each rule of weight versions, and serially: what staleness costs.

An MLP 784-64-...-64-10 (He initialisation, without which eight layers learn nothing) with one layer on each
of n ranks (threads), plain SGD, batches of 32 of 4,000 images of MNIST; the loss over these images after
training, for each seed, inf where it diverged. Narayanan et al. 2019 and 2021.

python benchmarks/pipeline_versions.py                         # 8 stages, learning rate 0.1
python benchmarks/pipeline_versions.py --stages 4 --rate 0.3
python benchmarks/pipeline_versions.py --stages 4 --rate 0.1   # a small rate for so few: all rules agree
"""

from __future__ import annotations

import math
from time import perf_counter
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

from backends.comm import run_ranks
from backends.pipeline.asynchronous import AsynchronousPipeline
from minigrad import mnist, nn, ops, optim
from minigrad.data import Batch
from minigrad.serial import Serial
from minigrad.strategy import Strategy
from minigrad.train import fit

# The least and the largest train loss of three seeds that a simulation of these rules in NumPy found.
CALIBRATION = {
    (4, 0.3): {
        "serial": "0.08-0.10",
        "2bw": "0.16-0.19",
        "stashing": "0.11-0.38",
        "vertical": "1.4-2.1",
        "no_stash": "2.30 in 2 of 3",
    },
    (8, 0.1): {
        "serial": "0.13-0.17",
        "2bw": "0.15-0.35",
        "stashing": "0.57-0.73",
        "vertical": "2.1-2.2",
        "no_stash": "2.28 or diverges",
    },
    (4, 0.1): dict.fromkeys(("serial", "2bw", "stashing", "vertical", "no_stash"), "0.10-0.15"),
}
RULES = ("serial", "2bw", "stashing", "vertical", "no_stash")


def main(
    stages: Annotated[int, typer.Option(min=2)] = 8,
    rate: Annotated[float, typer.Option(help="learning rate")] = 0.1,
    epochs: Annotated[int, typer.Option(min=1)] = 5,
    seeds: Annotated[int, typer.Option(min=1)] = 3,
    samples: Annotated[int, typer.Option(min=32, max=5000)] = 4000,
    batch: Annotated[int, typer.Option(min=1, help="samples in a step")] = 32,
) -> None:
    """Print the train loss of every rule, with what a simulation found for these settings, if it was run."""
    data = training_set(samples)
    known = CALIBRATION.get((stages, rate), {}) if (epochs, samples, batch) == (5, 4000, 32) else {}
    table = Table(
        title=f"{stages} stages, learning rate {rate}, {epochs} epochs, batches of {batch} of {samples}"
    )
    for column in ("", *(f"seed {seed}" for seed in range(seeds)), "mean", "simulated", "s"):
        table.add_column(column, justify="left" if not column else "right", no_wrap=True)
    for rule in RULES:
        start = perf_counter()
        losses = [train_loss(rule, data, stages, rate, epochs, seed, batch) for seed in range(seeds)]
        cells = [f"{loss:.3f}" for loss in (*losses, sum(losses) / seeds)]
        table.add_row(rule, *cells, known.get(rule, ""), f"{perf_counter() - start:.0f}")
    Console(width=110).print(table)


def training_set(samples: int) -> Batch:
    """Images as rows of 784 numbers in [0, 1], drawn from the training set."""
    train = mnist.load("mnist5k").train
    some = np.random.default_rng(0).permutation(len(train))[:samples]
    return Batch(train.x[some].reshape(samples, -1), train.y[some])


def train_loss(rule: str, data: Batch, stages: int, rate: float, epochs: int, seed: int, batch: int) -> float:
    """The loss over ``data`` after training on it; inf where training diverged."""

    def work(comm: Any) -> dict[str, np.ndarray]:
        backend: Strategy = Serial()
        if rule != "serial":
            backend = AsynchronousPipeline(comm, versions=rule, stale_rate="naive")
        model = backend.place(mlp(stages, seed))
        method = optim.SGD(model.parameters(), rate)
        fit(
            model,
            method,
            ops.cross_entropy,
            data,
            backend=backend,
            epochs=epochs,
            batch_size=batch,
            seed=seed,
        )
        return backend.state.full_parameters(model)

    model = mlp(stages, seed)
    with threadpool_limits(1), np.errstate(over="ignore", invalid="ignore"):
        try:
            model.load_state_dict(run_ranks(1 if rule == "serial" else stages, work)[0])
        except FloatingPointError:
            return math.inf
        loss = ops.cross_entropy(model(data.x), data.y).item()
    return loss if math.isfinite(loss) else math.inf


def mlp(stages: int, seed: int) -> nn.Sequential:
    """784-64-...-64-10 with ReLUs, one linear layer for each stage; weights of variance 2 / n_in."""
    rng = np.random.default_rng(seed)
    widths = [784, *[64] * (stages - 1), 10]
    layers: list[nn.Module] = []
    for n_in, n_out in zip(widths, widths[1:], strict=False):
        linear = nn.Linear(n_in, n_out, rng=rng)
        linear.load_state_dict(
            {"weight": rng.normal(0, (2 / n_in) ** 0.5, (n_out, n_in)), "bias": np.zeros(n_out)}
        )
        layers += [linear, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


if __name__ == "__main__":
    typer.run(main)
