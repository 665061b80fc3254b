"""The checks of tasks 1 to 3 of assignment a6: layers that are cut by neurons."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from minigrad_course.grading.assignment import load_file

from backends.comm import Communicator

checking = load_file(Path(__file__).parent / "checking.py", "checking_of_a6_neurons")
Call, counted, cut = checking.Call, checking.counted, checking.cut
numbers, once = checking.numbers, checking.once


@dataclass(frozen=True)
class Layer:
    """A linear layer."""

    ranks: int
    samples: int
    inputs: int
    neurons: int
    seed: int

    def __str__(self) -> str:
        sizes = ((self.ranks, "rank"), (self.samples, "sample"), (self.inputs, "input"))
        return ", ".join(counted(n, noun) for n, noun in (*sizes, (self.neurons, "neuron")))


@dataclass(frozen=True)
class Block(Layer):
    """Two linear layers, and a ReLU in between."""

    outputs: int

    def __str__(self) -> str:
        return f"{super().__str__()}, {counted(self.outputs, 'output')}"


def check_column(submission: Any, case: Layer, comm: Communicator) -> None:
    x, w = numbers(case, 0, case.samples, case.inputs), numbers(case, 1, case.neurons, case.inputs)
    b, g = numbers(case, 2, case.neurons), numbers(case, 3, case.samples, case.neurons)
    own_w, own_b, own_g = cut(w, comm, 0), cut(b, comm, 0), cut(g, comm, 1)
    call = Call(comm, submission, "column", x, own_w, own_b)
    saved = call.forward(x @ own_w.T + own_b, 0)
    expected = {"x": g @ w, "w": own_g.T @ x, "b": own_g.sum(0)}
    call.backward(saved, own_g, expected, once(x, comm), {"its own part of the sum": own_g @ own_w})


def check_row(submission: Any, case: Layer, comm: Communicator) -> None:
    x, w = numbers(case, 0, case.samples, case.inputs), numbers(case, 1, case.neurons, case.inputs)
    b, g = numbers(case, 2, case.neurons), numbers(case, 3, case.samples, case.neurons)
    own_x, own_w = cut(x, comm, 1), cut(w, comm, 1)
    call, y = Call(comm, submission, "row", own_x, own_w, b), x @ w.T + b
    hints = {
        "its own part of the sum, with the bias": own_x @ own_w.T + b,
        f"right but for the bias, which is in it {comm.size} times": y + (comm.size - 1) * b,
    }
    saved = call.forward(y, once(y, comm), hints)
    call.backward(saved, g, {"x": g @ own_w, "w": g.T @ own_x, "b": g.sum(0)}, 0)


def check_block(submission: Any, case: Block, comm: Communicator) -> None:
    x, w1 = numbers(case, 0, case.samples, case.inputs), numbers(case, 1, case.neurons, case.inputs)
    b1 = numbers(case, 2, case.neurons) + 0.5  # so that nothing stands where ReLU has its corner
    w2, b2 = numbers(case, 3, case.outputs, case.neurons), numbers(case, 4, case.outputs)
    g = numbers(case, 5, case.samples, case.outputs)
    h = x @ w1.T + b1
    dh = (g @ w2) * (h > 0)
    a, y = np.maximum(h, 0), np.maximum(h, 0) @ w2.T + b2
    call = Call(comm, submission, "block", x, cut(w1, comm, 0), cut(b1, comm, 0), cut(w2, comm, 1), b2)
    hints = {f"right but for the bias, which is in it {comm.size} times": y + (comm.size - 1) * b2}
    saved = call.forward(y, once(y, comm), hints)
    expected = {
        "x": dh @ w1,
        "w1": cut(dh.T @ x, comm, 0),
        "b1": cut(dh.sum(0), comm, 0),
        "w2": cut(g.T @ a, comm, 1),
        "b2": g.sum(0),
    }
    part = {"its own part of the sum": cut(dh, comm, 1) @ cut(w1, comm, 0)}
    call.backward(saved, g, expected, once(x, comm), part)
