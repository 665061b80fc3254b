"""Laws of normalisations: each is its definition, sample by sample."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minigrad import Tensor
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
