"""Transposed convolution: the pullback of a convolution to its images, as an op of its own.

Zeiler, Krishnan, Taylor and Fergus, "Deconvolutional networks", 2010.
Lecture section: back-propagation. Lesson: 02_backpropagation, by ``ops/__init__.py``.
"""

from __future__ import annotations

from ..device import Array, array_module
from ..dtypes import in_dtype_of
from ..integer_settings import Pair, integer, pair
from ..memory_order import nchw, nhwc
from ..op import op
from ..pullback import OpResult, shape_of
from ..tape import once
from .conv import algorithm_for, check_axes, check_bias
from .geometry import Geometry, with_border


@op
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
    and W' alike, plus bias (F,). So its own pullbacks are conv2d and the pullback of that to the kernel. x is
    taken in the dtype of weight. ``algorithm`` is one of conv2d's. Raises ValueError where something does not
    fit.
    """
    geometry = transposed_geometry(x, weight, stride, padding, dilation, groups)
    filters = weight.shape[1] * geometry.groups
    check_bias("conv_transpose2d", weight, bias, filters, f" and groups={geometry.groups}")
    xp, (n, _, height, width) = array_module(x), x.shape
    sizes = output_sizes(x, geometry, pair(output_padding, "output_padding", 0))
    x = in_dtype_of(weight, x)
    dtype = xp.result_type(x, weight)
    images = xp.broadcast_to(xp.zeros(1, dtype), (n, *sizes, filters))  # only their shape and dtype matter
    convolve = algorithm_for(images, weight, geometry, algorithm)

    # Output padding from a stride on is a window of conv2d more than x has: there x is 0.
    rows, columns = geometry.output(*sizes)
    pixels = with_border(nhwc(x).astype(dtype, copy=False), (0, 0), (rows - height, columns - width))
    _, (to_images, _) = convolve(images[:0], weight, geometry)  # of no images, as no value is needed
    y = to_images(pixels)

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


def transposed_geometry(
    x: Array, weight: Array, stride: Pair, padding: Pair, dilation: Pair, groups: int
) -> Geometry:
    """The windows of the convolution from the output to ``x``; raises ValueErrors of ``conv_transpose2d``."""
    check_axes("conv_transpose2d", "(C, F, kh, kw)", shape_of(x), shape_of(weight))
    groups, channels = integer(groups, "groups", 1), x.shape[1]
    if channels != weight.shape[0] or channels % groups:
        raise ValueError(
            f"conv_transpose2d of x {x.shape} with weight {weight.shape} and groups={groups}: x has "
            f"{channels} channels, the weight takes {weight.shape[0]}; make them agree and divisible by "
            "groups"
        )
    settings = pair(stride, "stride", 1), pair(padding, "padding", 0), pair(dilation, "dilation", 1)
    return Geometry(pair(weight.shape[2:], "kernel", 1), *settings, groups)


def output_sizes(x: Array, geometry: Geometry, output_padding: tuple[int, int]) -> tuple[int, int]:
    """The rows and columns of the output."""
    steps = zip(geometry.stride, geometry.dilation, output_padding, strict=True)
    if any(more and more >= max(s, d) for s, d, more in steps):
        raise ValueError(
            f"output_padding {output_padding} must be smaller than stride {geometry.stride} or dilation "
            f"{geometry.dilation}; use less of it"
        )
    parts = zip(x.shape[2:], geometry.stride, geometry.padding, geometry.extent, output_padding, strict=True)
    rows, columns = ((n - 1) * s - 2 * p + extent + more for n, s, p, extent, more in parts)
    if min(rows, columns, *x.shape[2:]) < 1:
        raise ValueError(
            f"conv_transpose2d of images of {x.shape[2:]} with a kernel of {geometry.kernel}, stride "
            f"{geometry.stride} and padding {geometry.padding} gives images of {(rows, columns)}; use larger "
            "images or less padding"
        )
    return rows, columns
