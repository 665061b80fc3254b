"""Laws of minigrad/ops/fast/implicit.py: its kernels compute convolution, pooling and ReLU, in any order of
threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minigrad.device import to_device, to_host
from minigrad.ops.conv import direct
from minigrad.ops.geometry import Geometry

BOUNDS = {"f": 1e-6, "d": 1e-14}  # of the sum of absolute products, for at most 600 of them


def is_pooled_convolution(
    convolve_and_pool: Callable[..., Any],
    x: np.ndarray,
    w: np.ndarray,
    geometry: Geometry,
    bias: np.ndarray,
    relu: bool,
    pool: int,
    **settings: Any,
) -> None:
    """The value and the three gradients, against sums in float64; whole numbers bit by bit.

    The bits do not depend on which thread of a block is first.
    """
    from cupy import _raw  # pyright: ignore[reportMissingImports]

    exact = all(np.array_equal(a, a.round()) for a in (x, w, bias))
    value, back = in_float64(x, w, geometry, bias, relu, pool)
    sizes, back_of_sizes = in_float64(abs(x), abs(w), geometry, abs(bias), False, pool)
    g = np.random.default_rng(0).integers(-4, 5, value.shape).astype(x.dtype)
    expected, absolute = [value, *back(g)], [sizes, *back_of_sizes(abs(g), everywhere=True)]
    bits: list[bytes] = []
    for order in range(3):
        _raw.order, before = order, _raw.order
        try:
            arrays = (to_device(a, "cupy") for a in (x, w, bias))
            x_there, w_there, bias_there = arrays
            y, pullbacks = convolve_and_pool(x_there, w_there, geometry, bias_there, relu, pool, **settings)
            g_there = to_device(g, "cupy")
            results = [to_host(y), *(to_host(pull(g_there)) for pull in pullbacks)]
        finally:
            _raw.order = before
        for name, a, b, size in zip(
            ("value", "images", "weights", "bias"), results, expected, absolute, strict=True
        ):
            assert a.shape == b.shape and a.dtype == x.dtype, f"{name}: {a.shape} {a.dtype}"
            slack = 0 if exact else BOUNDS[x.dtype.char] * size
            worst = np.nanmax(abs(a - b) - slack, initial=0) if np.isfinite(a).all() else np.inf
            assert worst <= 0, f"{name} is off by {abs(a - b).max():.1e}"
        bits.append(b"".join(a.tobytes() for a in results))
    assert len(set(bits)) == 1, "another thread first gives other bits: a race"


def in_float64(
    x: np.ndarray, w: np.ndarray, geometry: Geometry, bias: np.ndarray, relu: bool, pool: int
) -> tuple[np.ndarray, Callable[..., tuple[np.ndarray, ...]]]:
    """The value, and the gradients for a gradient of it: to the first largest of each window.

    ``everywhere`` sends the gradient to all pixels of a window, as a bound of its absolute value.
    """
    y, (to_images, to_kernel) = direct(x.astype(float), w.astype(float), geometry)
    n, height, width, filters = y.shape
    rows, columns = height // pool, width // pool
    windows = y[:, : rows * pool, : columns * pool].reshape(n, rows, pool, columns, pool, filters)
    windows = windows.transpose(0, 1, 3, 5, 2, 4).reshape(n, rows, columns, filters, pool**2)
    winners, largest = windows.argmax(-1), windows.max(-1) + bias

    def back(g: np.ndarray, everywhere: bool = False) -> tuple[np.ndarray, ...]:
        g = np.where(largest > 0, g, 0.0) if relu else g.astype(float)
        shares = g[..., None] * ((np.arange(pool**2) == winners[..., None]) | everywhere)
        shares = shares.reshape(n, rows, columns, filters, pool, pool).transpose(0, 1, 4, 2, 5, 3)
        of_outputs = np.zeros(y.shape)
        of_outputs[:, : rows * pool, : columns * pool] = shares.reshape(
            n, rows * pool, columns * pool, filters
        )
        return to_images(of_outputs), to_kernel(of_outputs), of_outputs.sum((0, 1, 2))

    return np.maximum(largest, 0) if relu else largest, back
