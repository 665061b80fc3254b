"""Convolution of images, (N, C, H, W) to the reader and channels-last in memory.

``direct`` is the readable form and the oracle of the fast ones.
Lecture section: back-propagation. Lesson: 02_backpropagation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache

import numpy as np

from ..device import Array, array_module, on_gpu
from ..lookup import check_choice
from ..op import OpResult, Pullback, op, shape_of
from ..sums import axis_sums
from ..tape import once
from . import depthwise, kernel_rows, winograd, winograd_rows
from .dilation import by_remainders, smaller
from .elementwise import in_dtype_of
from .geometry import (
    Convolved,
    Geometry,
    Pair,
    add_to_pixels,
    are_integers,
    check_windows_fit,
    extended,
    nchw,
    nhwc,
    pad_rows_and_columns,
    pair,
)
from .groups import Algorithm, one_by_one
from .im2col import FEW_CHANNELS, im2col


def direct(x: Array, w: Array, geometry: Geometry) -> Convolved:
    """Each tap of the kernel is a matrix product of one shifted image with one (C, F) slice of the weights.

    x is (N, H, W, C), w (F, C / groups, kh, kw); the value is (N, H', W', F).
    """
    xp = array_module(x)
    n, height, width, channels = x.shape
    rows, columns = geometry.output(height, width)
    padded = pad_rows_and_columns(x, geometry.padding)
    groups, (kh, kw) = geometry.groups, geometry.kernel
    taps = [(i, j) for i in range(kh) for j in range(kw)]
    ins = [slice(k * w.shape[1], (k + 1) * w.shape[1]) for k in range(groups)]
    outs = [slice(k * w.shape[0] // groups, (k + 1) * w.shape[0] // groups) for k in range(groups)]

    y = xp.zeros((n, rows, columns, w.shape[0]), xp.result_type(x, w))
    for i, j in taps:
        patch = padded[(slice(None), *geometry.tap(i, j, rows, columns))]
        for a, b in zip(ins, outs, strict=True):
            y[..., b] += patch[..., a] @ w[b, :, i, j].T

    def to_image(g: Array) -> Array:
        d = xp.zeros((len(g), *padded.shape[1:]), g.dtype)
        for i, j in taps:
            place = (slice(None), *geometry.tap(i, j, rows, columns))
            for a, b in zip(ins, outs, strict=True):
                d[(*place, a)] += g[..., b] @ w[b, :, i, j]
        ph, pw = geometry.padding
        return d[:, ph : ph + height, pw : pw + width]

    def to_kernel(g: Array) -> Array:
        d = xp.zeros_like(w)
        for i, j in taps:
            patch = padded[(slice(None), *geometry.tap(i, j, rows, columns))]
            for a, b in zip(ins, outs, strict=True):
                d[b, :, i, j] = xp.tensordot(g[..., b], patch[..., a], ((0, 1, 2), (0, 1, 2)))
        return d

    return y, (to_image, to_kernel)


ALGORITHMS: dict[str, Algorithm] = {
    "direct": direct,
    "im2col": im2col,
    "kernel_rows": kernel_rows.kernel_rows,
    "winograd": by_remainders(one_by_one(winograd.winograd)),
    "winograd_rows": winograd_rows.winograd_rows,
    "depthwise": depthwise.depthwise,
}


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


def fastest(x: Array, w: Array, geometry: Geometry) -> str:
    """The algorithm that "auto" means here; all but Winograd's round like the plain sum of products.

    Winograd's pays from 32 channels on, where its transforms cost less than the products they save, and for
    enough tiles that are not mostly padding; along rows only it pays from 4 channels on. They are left to
    float32, since gradients are proved in float64. On a GPU im2col is a kernel of its own.
    """
    may_round = x.dtype.char == w.dtype.char == "f" and not exact.get()
    return fastest_of_shapes(x.shape, w.shape, geometry, not on_gpu(x), may_round)


@lru_cache  # a step of a small network would ask for as long as a product takes
def fastest_of_shapes(
    x: tuple[int, ...], w: tuple[int, ...], geometry: Geometry, on_host: bool, may_round: bool
) -> str:
    """``fastest`` for x and w of these shapes; Winograd's algorithms are taken where it ``may_round``."""
    n, _, *size = x
    if depthwise.fits(w, geometry):
        return "depthwise"
    if not on_host:
        return "im2col"
    if may_round:
        outputs = smaller(n, *geometry.output(*size), geometry.dilation)
        enough = min(w[0] // geometry.groups, w[1]) >= 32
        if enough and winograd.fits(geometry) and winograd.pays(*outputs):
            return "winograd"
        if winograd_rows.fits(geometry) and winograd_rows.pays(n, w, geometry, *size):
            return "winograd_rows"
    if kernel_rows.fits(geometry) and kernel_rows.pays(n, w, geometry, *size):
        return "kernel_rows"
    return "im2col"


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
    column more stands at the end, as in PyTorch. ``algorithm`` is "auto" or a name in ``ALGORITHMS``. In
    float32 "auto" takes Winograd's for 3 x 3 kernels from 32 channels on, with errors of about 1e-5 of the
    largest element instead of 1e-6, and along rows for kernels of 3 to 5 rows from 4 channels on, with 3e-6;
    inside ``with exact_convolutions():`` it does not. Raises ValueError where something does not fit.
    """
    return convolution(
        x, weight, bias, checked_geometry(x, weight, stride, padding, dilation, groups), algorithm
    )


def convolution(
    x: Array, weight: Array, bias: Array | None, geometry: Geometry, algorithm: str
) -> tuple[Array, tuple[Pullback, ...]]:
    """The value of ``conv2d`` and its pullbacks."""
    if bias is not None and shape_of(bias) != weight.shape[:1]:
        raise ValueError(
            f"conv2d with weight {weight.shape} needs bias {weight.shape[:1]}, got {shape_of(bias)}"
        )
    if x.dtype != weight.dtype:
        x = in_dtype_of(weight, x)
    auto, image = algorithm == "auto", nhwc(x)
    form = ALGORITHMS[fastest(x, weight, geometry)] if auto else checked_algorithm(algorithm, geometry)
    if form in (ALGORITHMS["winograd"], ALGORITHMS["winograd_rows"]):  # they compute with fractions
        fractions = np.result_type(image.dtype, weight.dtype, np.float32)
        image, weight = (a if a.dtype.kind == "f" else a.astype(fractions) for a in (image, weight))
    if geometry.extra != (0, 0):
        image, geometry = extended(image, geometry.extra), geometry._replace(extra=(0, 0))
    added = bias is not None and adds_bias(form, image, weight, bias)
    y, (to_image, to_kernel) = form(image, weight, geometry, *((bias,) if added else ()))
    images, (height, width) = once(nhwc), x.shape[2:]

    def to_bias(g: Array) -> Array:
        g = images(g)
        return axis_sums(g.reshape(math.prod(g.shape[:3]), g.shape[3]), (0,))

    pullbacks = (
        lambda g: nchw(to_image(images(g))[:, :height, :width]),
        lambda g: to_kernel(images(g)),
    )
    if bias is None:
        return nchw(y), pullbacks
    if not added:
        y = y.astype(array_module(y).result_type(y, bias), copy=False)
        add_to_pixels(bias, y)
    return nchw(y), (*pullbacks, to_bias)


def adds_bias(form: Algorithm, x: Array, w: Array, bias: Array) -> bool:
    """Whether the algorithm adds the bias, while outputs are in the cache: on the host, in one dtype."""
    in_cache = kernel_rows.kernel_rows, winograd_rows.winograd_rows, depthwise.depthwise
    takes_it = form in in_cache or form is im2col and w.shape[1] < FEW_CHANNELS
    return takes_it and x.dtype == w.dtype == bias.dtype and not on_gpu(x)


def checked_geometry(
    x: Array, weight: Array, stride: Pair, padding: Pair | str, dilation: Pair, groups: int
) -> Geometry:
    """The window of ``conv2d``; raises its ValueErrors."""
    if not (type(groups) is int and groups > 0 or are_integers((groups,), 1, 1)):
        raise ValueError(f"groups must be an integer of at least 1, got {groups}")
    padding = padding if isinstance(padding, str) else pair(padding, "padding", 0)
    settings = pair(stride, "stride", 1), padding, pair(dilation, "dilation", 1), int(groups)
    return geometry_of_shapes(shape_of(x), shape_of(weight), *settings)


@lru_cache  # a network repeats a few shapes
def geometry_of_shapes(
    x: tuple[int, ...],
    weight: tuple[int, ...],
    stride: tuple[int, int],
    padding: tuple[int, int] | str,
    dilation: tuple[int, int],
    groups: int,
) -> Geometry:
    """``checked_geometry`` of the shapes of x and weight."""
    if len(x) != 4 or len(weight) != 4:
        raise ValueError(
            f"conv2d takes x (N, C, H, W) and weight (F, C, kh, kw), got {x} and {weight}; x[:, None] adds "
            "the axis of one channel, x[None] that of one image"
        )
    filters, channels = weight[0], weight[1] * groups
    if x[1] != channels or filters % groups:
        raise ValueError(
            f"conv2d of x {x} with weight {weight} and groups={groups}: x has {x[1]} channels, the weight "
            f"takes {channels} and has {filters} filters; make them agree and both divisible by groups"
        )
    by_name = isinstance(padding, str)
    geometry = Geometry(
        pair(weight[2:], "kernel", 1), stride, (0, 0) if by_name else padding, dilation, groups
    )
    if by_name:
        geometry = padded_by_name(geometry, padding)
    check_windows_fit(x[2:], geometry)
    return geometry


def padded_by_name(geometry: Geometry, name: str) -> Geometry:
    """``geometry``, which has no padding yet, with the padding "valid" (none) or "same"."""
    check_choice("padding", name, ["same", "valid"])
    if name == "valid":
        return geometry
    if geometry.stride != (1, 1):
        raise ValueError(
            f'padding="same" goes with stride 1, got stride {geometry.stride}; pass the padding as a number'
        )
    rows, columns = (extent - 1 for extent in geometry.extent)
    return geometry._replace(padding=(rows // 2, columns // 2), extra=(rows % 2, columns % 2))


def checked_algorithm(name: str, geometry: Geometry) -> Algorithm:
    check_choice("algorithm", name, ["auto", *ALGORITHMS])
    if name == "winograd" and not winograd.fits(geometry):
        raise ValueError(
            f"winograd needs a 3 x 3 kernel at stride 1, got {geometry.kernel} at stride {geometry.stride}; "
            "use algorithm='auto'"
        )
    if name == "winograd_rows" and not winograd_rows.fits(geometry):
        raise ValueError(
            f"winograd_rows needs a kernel of 3 to 5 rows at stride and dilation 1, got {geometry.kernel} at "
            f"stride {geometry.stride} and dilation {geometry.dilation}; use algorithm='auto'"
        )
    if name == "kernel_rows" and not kernel_rows.fits(geometry):
        raise ValueError(
            f"kernel_rows needs dilation 1 along the rows of images, got {geometry.dilation[1]}; use "
            "algorithm='auto'"
        )
    if name == "depthwise" and geometry.groups == 1:
        raise ValueError("depthwise needs a group for each channel, got groups=1; use algorithm='auto'")
    return ALGORITHMS[name]
