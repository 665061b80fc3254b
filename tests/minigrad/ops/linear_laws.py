"""Laws of minigrad/ops/linear.py, minigrad/ops/fast/linear_loops.py and minigrad/nn/linear.py: a linear
layer computes the activation that follows it, and its gradients, as formulas of NumPy do.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import numpy as np

from minigrad import Tape, Tensor, loops, nn
from minigrad.ops.fast import linear as fast_linear
from minigrad.tape import finish_weights
from minigrad.tensor import Parameter
from minigrad.testing import on_device
from tests.minigrad.ops.extremes import value_and_gradients
from tests.minigrad.ops.fast.fast_form_laws import readable_forms

Array = np.ndarray


def formulas(activation: str, z: Array) -> tuple[Array, Array]:
    """The activation of z, and its slope."""
    if activation == "none":
        return z, np.ones_like(z)
    if activation == "relu":
        return np.where(z > 0, z, 0), (z > 0).astype(z.dtype)
    share = np.array([0.5 * (1 + math.erf(e / math.sqrt(2))) for e in z.ravel().tolist()]).reshape(z.shape)
    return z * share, share + z * np.exp(-z * z / 2) / math.sqrt(2 * math.pi)


def computes_its_activation(
    linear: Callable[..., Any], activation: str, g: Array, x: Array, w: Array, *bias: Array
) -> None:
    """Value and gradients, for whole numbers, with and without loops, and on the readable shelf alone."""
    rows, gs = (a.reshape(-1, a.shape[-1]).astype(float) for a in (x, g))
    value, slope = formulas(activation, rows @ w.T.astype(float) + sum(bias))
    d = gs * slope
    expected = [value.reshape(g.shape), (d @ w).reshape(x.shape), d.T @ rows, *[d.sum(axis=0)] * len(bias)]
    names = "value", "gradient of x", "gradient of the weight", "gradient of the bias"
    for form in "loops", "no loops", "readable":
        with ExitStack() as forms:
            forms.enter_context(patch.dict(fast_linear.LOOPS_FROM, relu=1))
            if form == "no loops":
                forms.enter_context(patch.object(loops, "available", return_value=False))
            elif form == "readable":
                forms.enter_context(readable_forms())
            op = lambda *inputs: linear(*inputs, activation=activation)  # noqa: E731
            y, gradients = value_and_gradients(op, x, w, *bias, seed=g)
        for name, a, b in zip(names, [y, *gradients], expected, strict=False):
            assert a.dtype == x.dtype and a.shape == b.shape, f"the {name}: {a.dtype} {a.shape}, {form}"
            slack = 50 * np.finfo(x.dtype).eps * np.abs(b).max(initial=1)
            assert (np.abs(a - b) <= slack).all(), f"the {name} is off by {np.abs(a - b).max()}, {form}"


def holds_its_rows_and_one_array(linear: Callable[..., Any], activation: str, x: Array, n_out: int) -> None:
    """Backward needs what goes in, and the value of a ReLU or what a GELU is taken of."""
    parameters = [Parameter(on_device(np.ones(shape, x.dtype))) for shape in ((n_out, x.shape[-1]), (n_out,))]
    with Tape() as tape:
        y = linear(Tensor(on_device(x)), *parameters, activation=activation)
    most = x.nbytes + y.data.nbytes
    assert tape.nbytes <= most, f"the tape holds {tape.nbytes} bytes, more than {most}"


def weights_wait(linear: Callable[..., Any], activation: str, x: Array, w: Array, bias: Array) -> None:
    """Gradients of weights that are computed later, for two micro-batches as one product, are the usual."""
    runs = []
    for later in (False, True):
        parameters, items = [Parameter(on_device(a)) for a in (w, bias)], []
        for part in (x[: len(x) // 2], x[len(x) // 2 :]):
            with Tape() as tape:
                leaf = Tensor(on_device(part), requires_grad=True)
                loss = ((linear(leaf, *parameters, activation=activation) + 1.0) ** 2.0).sum()
            items += tape.backward(loss, weights_later=later)
        finish_weights(items)
        runs.append([Tensor(p.grad).numpy() for p in parameters])
    for a, b in zip(*runs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


def takes_the_activations_it_can(layers: list[nn.Module], taken: int, x: Array, **tolerance: Any) -> None:
    """A Sequential of a linear layer and ``layers`` does what they do one by one, in ``taken`` fewer ops."""
    linear, runs, entries = nn.Linear(x.shape[-1], 4, rng=0, dtype=x.dtype), [], []
    linear.to(device="numpy" if type(on_device(x)) is np.ndarray else "cupy")
    for written in ([nn.Sequential(linear, *layers)], [linear, *layers]):
        linear.zero_grad()
        leaf = Tensor(on_device(x), requires_grad=True)
        with Tape() as tape:
            y: Any = leaf
            for layer in written:
                y = layer(y)
            loss = (y * y).sum()
        entries.append(len(tape.entries))
        tape.backward(loss)
        runs.append([y.numpy(), *(Tensor(p.grad).numpy() for p in (leaf, *linear.parameters()))])
    assert entries[0] == entries[1] - taken, f"{entries[0]} ops, one by one {entries[1]}"
    for a, b in zip(*runs, strict=True):
        np.testing.assert_allclose(a, b, **tolerance)
