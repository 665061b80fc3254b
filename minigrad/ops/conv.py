"""Convolution of images, (N, C, H, W) to the reader and channels-last in memory, and its transpose.

``direct`` is the readable form and the oracle of the fast ones.
Lecture section: back-propagation. Lesson: 02_backpropagation.

>>> from minigrad import ops
>>> ops.conv2d([[[[1.0, 2.0, 3.0]]]], [[[[1.0, 1.0]]]]).data.tolist()
[[[[3.0, 5.0]]]]
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from ..half import layer_in_single
from ..integer_settings import Pair, integer, pair
from ..lookup import check_choice
from ..memory_order import nchw, nhwc
from ..op import Array, OpResult, Pullback, array_module, faster, in_dtype_of, once, op, shape_of
from ..sums import axis_sums
from .geometry import Geometry, bordered, check_windows_fit, with_border

Two = tuple[int, int]
Shape = tuple[int, ...]
Convolved = tuple[Array, tuple[Pullback, ...]]  # the value; pullbacks to images, kernel and perhaps bias
Algorithm = Callable[..., Convolved]  # of images, a kernel, a Geometry, and perhaps a bias


@op
@layer_in_single
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

    x is taken in the dtype of weight. Padding "same" makes H' = H and W' = W; an odd row or column of it is
    at the end, as in PyTorch. ``algorithm`` is "auto", "direct", or a name in the table of ``fast/conv.py``.
    In float32 "auto" takes Winograd's for 3 x 3 kernels from 32 channels on, with errors of about 1e-5 of the
    largest element instead of 1e-6, and along rows for kernels of 3 to 5 rows from 4 channels on, with 3e-6;
    inside ``with exact_convolutions():`` it does not. Raises ValueError where something does not fit.
    """
    geometry = checked_geometry("conv2d", x, weight, stride, padding, dilation, groups)
    check_bias("conv2d", weight, bias, len(weight))
    images, in_memory = nhwc(in_dtype_of(weight, x)), once(nhwc)
    convolve = algorithm_for(images, weight, geometry, algorithm)
    y, (to_images, to_kernel, *own) = convolve(images, weight, geometry, bias)

    def to_bias(g: Array) -> Array:
        g = in_memory(g)
        return own[0](g) if own else axis_sums(g.reshape(math.prod(g.shape[:3]), g.shape[3]), (0,))

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
    padded, (ph, pw) = bordered(x, geometry), geometry.padding
    ins, outs = w.shape[1], len(w) // geometry.groups  # channels and filters of a group
    taps = []  # what each sees of the images, filters to which it adds, and its weights
    for place, (i, j) in zip(geometry.places(height, width), np.ndindex(geometry.kernel), strict=True):
        for k in range(geometry.groups):
            channels, filters = slice(k * ins, (k + 1) * ins), slice(k * outs, (k + 1) * outs)
            taps.append(((*place, channels), filters, (filters, slice(None), i, j)))

    y = xp.zeros((n, *geometry.output(height, width), len(w)), xp.result_type(x, w))
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


@op
@layer_in_single
def conv_transpose2d(
    x: Array,
    weight: Array,
    bias: Array | None = None,
    *,
    stride: Pair = 1,
    padding: Pair = 0,
    output_padding: Pair = 0,
    dilation: Pair = 1,
    groups: int = 1,
    algorithm: str = "auto",
) -> OpResult:
    """The image gradient of conv2d with weight (C, F / groups, kh, kw) for the gradient x (N, C, H, W).

    The value is (N, F, H', W') with H' = (H - 1) stride - 2 padding + dilation (kh - 1) + output_padding + 1,
    and W' alike, plus bias (F,), so its own pullbacks are conv2d and conv2d's pullback to the kernel (Zeiler
    et al. 2010). x is taken in the dtype of weight. ``algorithm`` is one of conv2d's. Raises ValueError where
    something does not fit.
    """
    padding = pair(padding, "padding", 0)  # "same" is conv2d's
    geometry = checked_geometry("conv_transpose2d", x, weight, stride, padding, dilation, groups)
    filters = weight.shape[1] * geometry.groups
    check_bias("conv_transpose2d", weight, bias, filters, f" and groups={groups}")
    xp, (n, _, height, width) = array_module(x), x.shape
    sizes = transposed_sizes((height, width), geometry, pair(output_padding, "output_padding", 0))
    x = in_dtype_of(weight, x)
    dtype = xp.result_type(x, weight)
    images = xp.broadcast_to(xp.zeros(1, dtype), (n, *sizes, filters))  # only their shape and dtype matter
    convolve = algorithm_for(images, weight, geometry, algorithm)

    # Output padding from a stride on is a window of conv2d more than x has: there x is 0.
    rows, columns = geometry.output(*sizes)
    pixels = with_border(nhwc(x).astype(dtype, copy=False), (0, 0), (rows - height, columns - width))
    y = convolve(images[:0], weight, geometry)[1][0](pixels)  # of no images, as their value is not needed

    convolved = once(lambda g: convolve(nhwc(g), weight, geometry))
    pullbacks = (
        lambda g: nchw(convolved(g)[0][:, :height, :width].copy()),
        lambda g: convolved(g)[1][1](pixels),
    )
    if bias is None:
        return nchw(y), pullbacks
    y = y.astype(xp.result_type(y, bias), copy=False)
    y += bias
    return nchw(y), (*pullbacks, lambda g: nhwc(g).reshape(g.size // max(filters, 1), filters))


def transposed_sizes(image: Two, geometry: Geometry, output_padding: Two) -> Two:
    """The rows and columns of the output for an ``image``; raises ValueErrors of ``conv_transpose2d``."""
    _, stride, padding, dilation, *_ = geometry
    axes = list(zip(image, stride, padding, dilation, geometry.extent, output_padding, strict=True))
    if any(more and more >= max(s, d) for _, s, _, d, _, more in axes):
        raise ValueError(
            f"output_padding {output_padding} must be smaller than stride {stride} or dilation {dilation}; "
            "use less of it"
        )
    rows, columns = ((n - 1) * s - 2 * p + extent + more for n, s, p, _, extent, more in axes)
    if min(rows, columns, *image) < 1:
        raise ValueError(
            f"conv_transpose2d of images of {image} with a kernel of {geometry.kernel}, stride {stride} and "
            f"padding {padding} gives images of {(rows, columns)}; use larger images or less padding"
        )
    return rows, columns


def checked_geometry(
    op: str,
    x: Array,
    weight: Array,
    stride: Pair = 1,
    padding: Pair | str = 0,
    dilation: Pair = 1,
    groups: int = 1,
) -> Geometry:
    """The windows of ``op``; raises its ValueErrors."""
    padding = padding if isinstance(padding, str) else pair(padding, "padding", 0)
    settings = pair(stride, "stride", 1), padding, pair(dilation, "dilation", 1), integer(groups, "groups", 1)
    return geometry_of_shapes(op, shape_of(x), shape_of(weight), *settings)


@lru_cache  # a network repeats a few shapes
def geometry_of_shapes(
    op: str, x: Shape, weight: Shape, stride: Two, padding: Two | str, dilation: Two, groups: int
) -> Geometry:
    """The windows of ``op`` for shapes of x and weight; ``conv_transpose2d`` has windows on its output."""
    transposed = op == "conv_transpose2d"
    if len(x) != 4 or len(weight) != 4:
        axes = "(C, F, kh, kw)" if transposed else "(F, C, kh, kw)"
        raise ValueError(
            f"{op} takes x (N, C, H, W) and weight {axes}, got {x} and {weight}; x[:, None] adds the axis of "
            "one channel, x[None] that of one image"
        )
    filters, channels = weight[0], weight[0] if transposed else weight[1] * groups
    if x[1] != channels or filters % groups:
        more, both = ("", "") if transposed else (f" and has {filters} filters", "both ")
        raise ValueError(
            f"{op} of x {x} with weight {weight} and groups={groups}: x has {x[1]} channels, the weight "
            f"takes {channels}{more}; make them agree and {both}divisible by groups"
        )
    border = (0, 0) if isinstance(padding, str) else padding
    geometry = Geometry(pair((weight[2], weight[3]), "kernel", 1), stride, border, dilation, groups)
    if isinstance(padding, str):
        check_choice("padding", padding, ["same", "valid"])
    if padding == "same":
        if stride != (1, 1):
            raise ValueError(
                f'padding="same" goes with stride 1, got stride {stride}; pass the padding as a number'
            )
        rows, columns = (extent - 1 for extent in geometry.extent)
        geometry = geometry._replace(padding=(rows // 2, columns // 2), extra=(rows % 2, columns % 2))
    if not transposed:
        check_windows_fit((x[2], x[3]), geometry)
    return geometry


def check_bias(op: str, weight: Array, bias: Array | None, n: int, more: str = "") -> None:
    """Raise ValueError unless the bias, where there is one, has n numbers."""
    if bias is not None and shape_of(bias) != (n,):
        raise ValueError(f"{op} with weight {weight.shape}{more} needs bias {(n,)}, got {shape_of(bias)}")
