"""Convolution of images, (N, C, H, W) to the reader and channels-last in memory.

``direct`` is the readable form and the oracle of the fast ones.
Lecture section: back-propagation. Lesson: 02_backpropagation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np

from ..device import Array, array_module
from ..dtypes import in_dtype_of
from ..faster import faster
from ..lookup import check_choice
from ..memory_order import nchw, nhwc
from ..op import op
from ..pullback import OpResult, Pullback, shape_of
from ..sums import axis_sums
from ..tape import once
from .conv_geometry import checked_geometry
from .geometry import Geometry, Pair, bordered

Convolved = tuple[Array, tuple[Pullback, Pullback]]  # the value; the pullbacks to the image and the kernel
Algorithm = Callable[..., Convolved]  # of images, a kernel, a Geometry, and perhaps a bias


@op
def conv2d(
    x: Array,
    weight: Array,
    bias: Array | None = None,
    *,
    stride: Pair = 1,
    padding: Pair | str = 0,
    dilation: Pair = 1,
    groups: int = 1,
    algorithm: str = "auto",
) -> OpResult:
    """Slide weight (F, C / groups, kh, kw) over x (N, C, H, W): (N, F, H', W'), plus bias (F,).

    x is taken in the dtype of weight. Padding "same" makes H' = H and W' = W; where it is odd, one row or
    column more stands at the end, as in PyTorch. ``algorithm`` is "auto", "direct", or a name in the table
    of ``fast/conv.py``. In float32 "auto" takes Winograd's for 3 x 3 kernels from 32 channels on, with errors
    of about 1e-5 of the largest element instead of 1e-6, and along rows for kernels of 3 to 5 rows from 4
    channels on, with 3e-6; inside ``with exact_convolutions():`` it does not. Raises ValueError where
    something does not fit.
    """
    geometry = checked_geometry(x, weight, stride, padding, dilation, groups)
    return convolution(x, weight, bias, geometry, algorithm)


def convolution(
    x: Array, weight: Array, bias: Array | None, geometry: Geometry, algorithm: str
) -> tuple[Array, tuple[Pullback, ...]]:
    """The value of ``conv2d`` and its pullbacks."""
    if bias is not None and shape_of(bias) != weight.shape[:1]:
        raise ValueError(
            f"conv2d with weight {weight.shape} needs bias {weight.shape[:1]}, got {shape_of(bias)}"
        )
    images, in_memory = nhwc(in_dtype_of(weight, x)), once(nhwc)
    convolve = algorithm_for(images, weight, geometry, algorithm)
    y, (to_images, to_kernel) = convolve(images, weight, geometry, bias)

    def to_bias(g: Array) -> Array:
        g = in_memory(g)
        return axis_sums(g.reshape(math.prod(g.shape[:3]), g.shape[3]), (0,))

    pullbacks = lambda g: nchw(to_images(in_memory(g))), lambda g: to_kernel(in_memory(g))
    return nchw(y), pullbacks if bias is None else (*pullbacks, to_bias)


@faster
def algorithm_for(x: Array, w: Array, geometry: Geometry, name: str) -> Algorithm:
    """The algorithm ``name`` for images x (N, H, W, C) and a kernel w; ValueError where there is none."""
    check_choice("algorithm", name, ["auto", "direct"])
    return direct


def direct(x: Array, w: Array, geometry: Geometry, bias: Array | None = None) -> Convolved:
    """Each tap of the kernel is a matrix product of one shifted image with one (C, F) slice of the weights.

    x is (N, H, W, C), w (F, C / groups, kh, kw), bias (F,); the value is (N, H', W', F).
    """
    xp, (n, height, width, _) = array_module(x), x.shape
    rows, columns = geometry.output(height, width)
    padded, (ph, pw) = bordered(x, geometry), geometry.padding
    ins, outs = w.shape[1], len(w) // geometry.groups  # channels and filters of a group
    taps = []  # what each sees of the images, filters to which it adds, and its weights
    for i, j in np.ndindex(geometry.kernel):
        for k in range(geometry.groups):
            channels, filters = slice(k * ins, (k + 1) * ins), slice(k * outs, (k + 1) * outs)
            pixels = slice(None), *geometry.tap(i, j, rows, columns), channels
            taps.append((pixels, filters, (filters, slice(None), i, j)))

    y = xp.zeros((n, rows, columns, len(w)), xp.result_type(x, w))
    for pixels, filters, tap in taps:
        y[..., filters] += padded[pixels] @ w[tap].T

    def to_images(g: Array) -> Array:
        d = xp.zeros((len(g), *padded.shape[1:]), g.dtype)
        for pixels, filters, tap in taps:
            d[pixels] += g[..., filters] @ w[tap]
        return d[:, ph : ph + height, pw : pw + width]

    def to_kernel(g: Array) -> Array:
        d = xp.zeros_like(w)
        for pixels, filters, tap in taps:
            d[tap] = xp.tensordot(g[..., filters], padded[pixels], ((0, 1, 2), (0, 1, 2)))
        return d

    return (y if bias is None else y + bias), (to_images, to_kernel)


exact: ContextVar[bool] = ContextVar("minigrad.exact_convolutions", default=False)


@contextmanager
def exact_convolutions(mode: bool = True) -> Iterator[None]:
    """Inside the ``with``, convolutions of this thread round like plain sums of products.

    "auto" does not take Winograd's algorithms then, whose errors in float32 are up to ten times as large:
    1e-5 of the largest element instead of 1e-6. With ``mode=False`` it may take them again.
    """
    token = exact.set(mode)
    try:
        yield
    finally:
        exact.reset(token)
