"""Where the bytes go: the memory of each rank, on a data axis of ranks and a pipeline of stages.

Lessons: 03_memory, 06_data_parallel and 13_pipeline. ZeRO's formulas are those of
backends/data_parallel/zero/sharded.py; the bytes of a sample's tape are measured in a batch of several, and a
schedule says how many tapes a rank holds. All is float32.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import ceil
from typing import Any, NamedTuple

import numpy as np

from backends.partition import bounds_by_bytes
from backends.pipeline import SCHEDULES, Backward, Forward, Timetable, Weight
from backends.pipeline.schedule import around
from minigrad.data import Batch
from minigrad.models import NETS, Net
from minigrad.module import Sequential
from minigrad.tape import Tape
from minigrad.tensor import Tensor

FLOAT = 4  # bytes of a float32
SAMPLES = 16  # of few, a convolution with pooling stores its windows, too: up to 256 KB
STAGES, MICROS = (1, 2, 3, 4), range(1, 9)
OPTIMIZERS = {"sgd": 0, "sgd with momentum": FLOAT, "adam": 2 * FLOAT}
"""Bytes of an optimizer's state for each parameter."""
SHARDED = {0: [], 1: ["optimizer"], 2: ["optimizer", "gradients"], 3: ["optimizer", "gradients", "weights"]}
"""What the ranks of the data axis share, by the stage of ZeRO."""


class Choice(NamedTuple):
    """What the reader chooses; ``data`` ranks share each of ``pipe`` stages, ``batch`` samples are a step."""

    net: str
    pipe: int = 1
    data: int = 1
    zero: int = 0
    optimizer: str = "adam"
    schedule: str = "1f1b"
    micro: int = 4
    batch: int = 64
    recompute: bool = False


def byte_data() -> dict[str, Any]:
    """The coefficients of ``bytes_of``, from which bytes_sum.mjs computes the same."""
    return {
        "float": FLOAT,
        "optimizers": OPTIMIZERS,
        "sharded": SHARDED,
        "micros": list(MICROS),
        "nets": {name: layouts_of(NETS[name]) for name in ("mlp", "lenet", "vgg")},
        "tapes": {
            name: {f"{p},{m}": tapes_of(schedule.of(p, m)) for p in STAGES for m in MICROS}
            for name, schedule in SCHEDULES.items()
            if schedule.route is around and schedule.chunks == 1
        },
    }


def bytes_of(choice: Choice, data: dict[str, Any]) -> list[dict[str, float]]:
    """The bytes of each stage's ranks, by what they are for."""
    samples = ceil(ceil(choice.batch / choice.data) / choice.micro)  # of the largest micro-batch
    sharded = data["sharded"][choice.zero]
    per_parameter = {
        "weights": data["float"],
        "gradients": data["float"],
        "optimizer": data["optimizers"][choice.optimizer],
    }
    rows = []
    for stage, tapes in zip(
        data["nets"][choice.net][choice.pipe]["stages"],
        data["tapes"][choice.schedule][f"{choice.pipe},{choice.micro}"],
        strict=True,
    ):
        row = {
            what: stage["parameters"] * nbytes / (choice.data if what in sharded else 1)
            for what, nbytes in per_parameter.items()
        }
        pairs = tapes["recompute"] if choice.recompute else [[tapes["most"], tapes["most"]]]
        sizes = [inputs * stage["input"] + whole * stage["tape"] for inputs, whole in pairs]
        rows.append(row | {"activations": samples * max(sizes)})
    return rows


def layouts_of(net: Net) -> dict[int, Any]:
    """The stages by their number, where each has parameters: else a data axis has nothing to share there."""
    layouts = {number: stages_of(net, number) for number in STAGES}
    return {n: one for n, one in layouts.items() if all(stage["parameters"] for stage in one["stages"])}


def stages_of(net: Net, number: int) -> dict[str, Any]:
    """The stages of a net cut by bytes: parameters, and the bytes of one sample's input and of its tape.

    The input of the first stage is a part of the batch, which is there anyway, and counts as 0, like the
    targets.
    """
    batch = net.prepare(Batch(np.zeros((SAMPLES, *net.sample)), np.zeros(SAMPLES, int)), "float32")
    model = net.build(np.random.default_rng(0)).to(dtype="float32")
    assert isinstance(model, Sequential)
    bounds = bounds_by_bytes(model, number)
    stages, x = [], batch.x
    for first, last in pairwise(bounds):
        part = Sequential(*model.layers[first:last])
        y, nbytes = forward(part, x, net, batch.y if last == len(model.layers) else None)
        parameters = sum(p.data.size for p in part.parameters())
        of_input = x.nbytes // SAMPLES if first else 0
        stages.append({"parameters": parameters, "input": of_input, "tape": nbytes // SAMPLES})
        x = np.array(y.data)
    return {"bounds": list(bounds), "stages": stages}


def forward(part: Sequential, x: np.ndarray, net: Net, targets: Any) -> tuple[Tensor, int]:
    """The output of a stage, and the bytes of its tape beside the batch; ``targets`` are for the loss."""
    with Tape() as tape:
        y = part(Tensor(x, requires_grad=True))
        if targets is not None:
            net.loss(y, targets)
    return y, tape.nbytes - (0 if targets is None else targets.nbytes)


def tapes_of(table: Timetable) -> list[dict[str, Any]]:
    """By rank, the ``most`` tapes that it holds; with recomputation the pairs of inputs and whole tapes."""
    rows = []
    for rank in range(table.ranks):
        pairs = sorted(memory(table, rank))
        largest = {whole: inputs for inputs, whole in pairs}  # the last of each, which has the most inputs
        rows.append({"most": pairs[-1][0], "recompute": [[n, whole] for whole, n in sorted(largest.items())]})
    return rows


def memory(table: Timetable, rank: int) -> Iterator[tuple[int, int]]:
    """During each instruction: micro-batches whose input the rank holds, and those with a whole tape.

    With recomputation a tape is whole from its backward, for which it is computed again, to its ``Weight``.
    """
    forwards = weights = 0  # gone forward, and not yet back; back, and waiting for the gradients of weights
    for i in table.instructions[rank]:
        if isinstance(i, Forward):
            forwards += 1
            yield forwards + weights, weights
        elif isinstance(i, Backward):
            yield forwards + weights, weights + 1
            forwards -= 1
            weights += (i.micro, i.chunk) in table.split[rank]
        elif isinstance(i, Weight):
            yield forwards + weights, weights
            weights -= len(i.micros)
