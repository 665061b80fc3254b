"""Convolution of images, (N, C, H, W) to the reader and channels-last in memory.

``direct`` is the readable form and the oracle of the fast ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..device import Array, array_module
from ..op import Pulled, op
from ..tape import once

Pair = int | tuple[int, int]


class Geometry(NamedTuple):
    """Where a k x k window stands on an image: pairs for rows and columns, and the number of groups."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    groups: int = 1

    def output(self, height: int, width: int) -> tuple[int, int]:
        """How many windows fit, per axis: floor((size + 2 padding - dilation (kernel - 1) - 1) / stride) + 1."""
        sizes = zip((height, width), self.kernel, self.stride, self.padding, self.dilation, strict=True)
        h, w = ((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in sizes)
        return h, w

    def tap(self, i: int, j: int, rows: int, columns: int) -> tuple[slice, slice]:
        """What tap (i, j) of the kernel sees of the padded image, for ``rows`` x ``columns`` windows."""
        starts = i * self.dilation[0], j * self.dilation[1]
        ends = (rows - 1) * self.stride[0] + 1, (columns - 1) * self.stride[1] + 1
        a, b = (slice(s, s + e, t) for s, e, t in zip(starts, ends, self.stride, strict=True))
        return a, b


def direct(x: Array, w: Array, geometry: Geometry) -> Pulled:
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

    y = xp.zeros((n, rows, columns, w.shape[0]), x.dtype)
    for i, j in taps:
        seen = padded[(slice(None), *geometry.tap(i, j, rows, columns))]
        for a, b in zip(ins, outs, strict=True):
            y[..., b] += seen[..., a] @ w[b, :, i, j].T

    def to_image(g: Array) -> Array:
        d = xp.zeros(padded.shape, g.dtype)
        for i, j in taps:
            place = (slice(None), *geometry.tap(i, j, rows, columns))
            for a, b in zip(ins, outs, strict=True):
                d[(*place, a)] += g[..., b] @ w[b, :, i, j]
        ph, pw = geometry.padding
        return d[:, ph : ph + height, pw : pw + width]

    def to_kernel(g: Array) -> Array:
        d = xp.zeros_like(w)
        for i, j in taps:
            seen = padded[(slice(None), *geometry.tap(i, j, rows, columns))]
            for a, b in zip(ins, outs, strict=True):
                d[b, :, i, j] = xp.tensordot(g[..., b], seen[..., a], ((0, 1, 2), (0, 1, 2)))
        return d

    return y, (to_image, to_kernel)


ALGORITHMS: dict[str, Callable[[Array, Array, Geometry], Pulled]] = {"direct": direct}


@op
def conv2d(
    x: Array,
    weight: Array,
    bias: Array | None = None,
    *,
    stride: Pair = 1,
    padding: Pair = 0,
    dilation: Pair = 1,
    groups: int = 1,
    algorithm: str = "auto",
) -> Pulled:
    """Slide weight (F, C / groups, kh, kw) over x (N, C, H, W): (N, F, H', W'), plus bias (F,).

    ``algorithm`` is "auto" or a name in ``ALGORITHMS``. Raises ValueError where shapes or settings do not fit.
    """
    geometry = checked_geometry(x, weight, stride, padding, dilation, groups)
    chosen = ALGORITHMS["direct"]
    y, (to_image, to_kernel) = chosen(nhwc(x), weight, geometry)
    images = once(nhwc)
    pullbacks = (lambda g: nchw(to_image(images(g))), lambda g: to_kernel(nhwc(g)))
    if bias is None:
        return nchw(y), pullbacks
    y += bias
    return nchw(y), (*pullbacks, lambda g: nhwc(g).reshape(-1, g.shape[1]))


def nhwc(x: Array) -> Array:
    """Images as a contiguous (N, H, W, C) array; free when they are channels-last in memory."""
    return array_module(x).ascontiguousarray(x.transpose(0, 2, 3, 1))


def nchw(x: Array) -> Array:
    """(N, H, W, C) as the (N, C, H, W) view that ops hand out."""
    return x.transpose(0, 3, 1, 2)


def pad_rows_and_columns(x: Array, padding: tuple[int, int], value: float = 0) -> Array:
    """(N, H, W, C) images with a border of ``value``."""
    (ph, pw), (n, h, w, c) = padding, x.shape
    if not ph and not pw:
        return x
    padded = array_module(x).full((n, h + 2 * ph, w + 2 * pw, c), value, x.dtype)
    padded[:, ph : ph + h, pw : pw + w] = x
    return padded


def pair(value: Pair, name: str, least: int) -> tuple[int, int]:
    """A setting for rows and columns, given as one number or two."""
    both = (value, value) if isinstance(value, int) else tuple(value)
    if len(both) != 2 or min(both) < least:
        raise ValueError(f"{name} must be one or two integers of at least {least}, got {value}")
    return both


def checked_geometry(
    x: Array, weight: Array, stride: Pair, padding: Pair, dilation: Pair, groups: int
) -> Geometry:
    if x.ndim != 4 or weight.ndim != 4:
        raise ValueError(
            f"conv2d takes x (N, C, H, W) and weight (F, C, kh, kw), got {x.shape} and {weight.shape}"
        )
    filters, channels = weight.shape[0], weight.shape[1] * groups
    if x.shape[1] != channels or groups < 1 or filters % groups:
        raise ValueError(
            f"conv2d of x {x.shape} with weight {weight.shape} and groups={groups}: x has {x.shape[1]} channels, "
            f"the weight takes {channels} and has {filters} filters; make them agree and both divisible by groups"
        )
    geometry = Geometry(
        weight.shape[2:],
        pair(stride, "stride", 1),
        pair(padding, "padding", 0),
        pair(dilation, "dilation", 1),
        groups,
    )
    check_windows_fit(x, geometry)
    return geometry


def check_windows_fit(x: Array, geometry: Geometry) -> None:
    if min(geometry.output(*x.shape[2:])) < 1:
        raise ValueError(
            f"a window of {geometry.kernel} with dilation {geometry.dilation} does not fit into images of "
            f"{x.shape[2:]} padded by {geometry.padding}; use a smaller kernel or more padding"
        )
