"""Laws of minigrad/ops/group_norm.py, layer_norm.py and batch_norm.py: each normalisation is its definition,
sample by sample.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minigrad import Tape, Tensor, nn, ops
from minigrad.device import to_host
from minigrad.testing import on_device

Op = Callable[..., Tensor]


def normalizes_groups(op: Op, x: np.ndarray, n_groups: int, **settings: Any) -> None:
    """``op`` of x (N, C, ...) normalizes each group of each sample, then scales and shifts channels."""
    weight, bias = np.linspace(1, 2, x.shape[1]), np.linspace(-1, 1, x.shape[1])
    by_group = x.reshape(len(x), n_groups, np.prod(x.shape[1:], dtype=int) // n_groups)
    centred = by_group - by_group.mean(2, keepdims=True)
    normal = (centred / np.sqrt((centred**2).mean(2, keepdims=True) + 1e-5)).reshape(x.shape)
    per_channel = (-1, *[1] * (x.ndim - 2))
    expected = normal * weight.reshape(per_channel) + bias.reshape(per_channel)
    y = op(on_device(x), on_device(weight), on_device(bias), **settings).numpy()
    np.testing.assert_allclose(y, expected, rtol=1e-12, atol=1e-12)


def divides_by_the_root_mean_square(op: Op, x: np.ndarray, weight: np.ndarray, eps: float | None) -> None:
    axes = tuple(range(-weight.ndim, 0))
    added = np.finfo(x.dtype).eps if eps is None else eps
    expected = x / np.sqrt((x * x).mean(axes, keepdims=True) + added) * weight
    np.testing.assert_allclose(op(on_device(x), on_device(weight), eps=eps).numpy(), expected, rtol=1e-12)


def several_axes_are_one(op: Op, x: np.ndarray, *parameters: np.ndarray) -> None:
    """The last axes, those of the parameters, are normalised as if they were one."""
    shape = parameters[0].shape
    rows = x.reshape(*x.shape[: x.ndim - len(shape)], parameters[0].size)
    flat = op(on_device(rows), *(on_device(p.reshape(-1)) for p in parameters)).numpy()
    y = op(on_device(x), *map(on_device, parameters)).numpy()
    np.testing.assert_array_equal(y, flat.reshape(x.shape))


def holds_one_array(op: Op, x: np.ndarray) -> None:
    """Backward of x (N, C, H, C) needs the deviations or the normalized x, neither x nor the value."""
    weight, bias = on_device(np.ones(x.shape[1])), on_device(np.zeros(x.shape[1]))
    leaf = Tensor(on_device(x), requires_grad=True)
    with Tape() as tape:
        op(leaf + 1.0, weight, bias)
    assert tape.nbytes < 1.5 * x.nbytes, f"the tape holds {tape.nbytes} bytes for x of {x.nbytes}"


def takes_the_relu_behind_it(op: Op, g: np.ndarray, *inputs: np.ndarray, **settings: Any) -> None:
    """With ``relu`` the op has the bits of a ReLU behind it, in the value and in all gradients of g."""
    runs = []
    for relu in (True, False):
        tensors = [Tensor(on_device(a), requires_grad=True) for a in inputs]
        with Tape() as tape:
            y = op(*tensors, relu=True, **settings) if relu else ops.relu(op(*tensors, **settings))
        tape.backward(y, on_device(g))
        runs.append([y.numpy(), *(to_host(x.grad) for x in tensors)])
    for what, a, b in zip(("value", "gradient of x", "weight's", "bias's"), *runs, strict=True):
        assert a.dtype == b.dtype, f"the {what} has dtype {a.dtype}, not {b.dtype}"
        np.testing.assert_array_equal(a, b, what)


def stands_for_its_layers(model: nn.Sequential, x: Any, ops_less: int) -> None:
    """A Sequential does what its layers do one by one, bit for bit, in ``ops_less`` fewer ops."""
    state, runs, entries = model.state_dict(), [], []
    for layers in ([model], model.layers):
        model.load_state_dict(state)
        with Tape() as tape:
            y = Tensor(x, requires_grad=True)
            for layer in layers:
                y = layer(y)
        entries.append(len(tape.entries))
        runs.append([y.numpy(), *model.state_dict().values()])
    assert entries[0] == entries[1] - ops_less, f"{entries[0]} ops, one by one {entries[1]}"
    for a, b in zip(*runs, strict=True):
        np.testing.assert_array_equal(a, b)
