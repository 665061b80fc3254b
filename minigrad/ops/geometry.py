"""Where a window stands on an image. Images are (N, C, H, W) to the reader and (N, H, W, C) in memory.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``conv.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, wraps
from typing import Any, NamedTuple

import numpy as np

from ..device import Array, array_module
from ..op import OpResult, Pullback, shape_of

Pair = int | tuple[int, int]
Place = tuple[slice, slice]  # some images, and rows of their outputs
Convolved = tuple[Array, tuple[Pullback, Pullback]]  # the value; the pullbacks to the image and the kernel
FEW = 4096  # elements to which a bias is added in the time of a call
MANY = 4  # images for which it pays to repeat a bias for a whole one


class Geometry(NamedTuple):
    """A window on images: pairs for rows and columns, and the number of groups of channels.

    ``extra`` is border that images get only below and on the right, besides ``padding``.
    """

    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    groups: int = 1
    extra: tuple[int, int] = (0, 0)

    @property
    def extent(self) -> tuple[int, int]:
        """How many rows and columns a window spans, with those between its taps."""
        rows, columns = (d * (k - 1) + 1 for d, k in zip(self.dilation, self.kernel, strict=True))
        return rows, columns

    @lru_cache(maxsize=1024)  # noqa: B019  (a convolution asks six times, of a network's few sizes)
    def output(self, height: int, width: int) -> tuple[int, int]:
        """Windows per axis: floor((size + 2 padding + extra - extent) / stride) + 1."""
        (kh, kw), (sh, sw), (ph, pw), (dh, dw), _, (eh, ew) = self
        rows, columns = height + 2 * ph + eh - dh * (kh - 1) - 1, width + 2 * pw + ew - dw * (kw - 1) - 1
        return rows // sh + 1, columns // sw + 1

    def tap(self, i: int, j: int, rows: int, columns: int) -> tuple[slice, slice]:
        """What tap (i, j) of the kernel sees of the padded image, for ``rows`` x ``columns`` windows."""
        _, (sh, sw), _, (dh, dw), *_ = self
        top, left = i * dh, j * dw
        return slice(top, top + (rows - 1) * sh + 1, sh), slice(left, left + (columns - 1) * sw + 1, sw)

    def backward(self) -> Geometry:
        """The window of the input gradient at stride 1, a convolution of g with the kernel turned round.

        Negative padding cuts off: what the outermost windows saw was padding only.
        """
        (kh, kw), _, (ph, pw), (dh, dw), *_ = self
        return self._replace(padding=(dh * (kh - 1) - ph, dw * (kw - 1) - pw))


def nhwc(x: Array) -> Array:
    """Images as a contiguous (N, H, W, C) array; free when they are channels-last in memory."""
    return array_module(x).ascontiguousarray(x.transpose(0, 2, 3, 1))


def nchw(x: Array) -> Array:
    """(N, H, W, C) as the (N, C, H, W) view that ops hand out."""
    return x.transpose(0, 3, 1, 2)


def pixels(x: np.ndarray) -> np.ndarray:
    """Images (..., H, W, C) as (..., H, W) elements where C > 0; NumPy copies these in half the time."""
    return x.view(np.dtype((np.void, x.shape[-1] * x.itemsize)))[..., 0] if x.shape[-1] else x


def in_memory_order(function: Callable[..., OpResult]) -> Callable[..., OpResult]:
    """``function``, which treats each element alone, of images channels-last as (N, H, W, C) arrays.

    NumPy's functions write in the memory order of their operands, CuPy's in C order, which here is the same.
    """

    def turned(x: Any) -> Any:
        ndim = len(shape_of(x))  # what has no axes broadcasts anyway
        return x[(None,) * (4 - ndim)].transpose(0, 2, 3, 1) if ndim else x

    def turned_pullback(pullback: Pullback) -> Pullback:
        return wraps(pullback)(lambda g: nchw(pullback(g.transpose(0, 2, 3, 1))))

    @wraps(function)
    def ordered(*arrays: Any, **settings: Any) -> OpResult:
        if not any(map(is_channels_last, arrays)) or any(len(shape_of(x)) > 4 for x in arrays):
            return function(*arrays, **settings)
        value, pullbacks = function(*map(turned, arrays), **settings)
        return nchw(value), tuple(pull and turned_pullback(pull) for pull in pullbacks)

    return ordered


def is_channels_last(x: Any) -> bool:
    """Whether ``x`` are images whose channels lie closer together in memory than their columns."""
    return len(shape_of(x)) == 4 and x.strides[1] < x.strides[3]


def strided_view(x: Array, first: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> Array:
    """The view of a contiguous ``x`` that begins at its element ``first``, with strides in bytes.

    Of NumPy's arrays it is as_strided in a tenth of the time, which is 3 us.
    """
    xp = array_module(x)
    if xp is np:
        return np.ndarray(shape, x.dtype, x, first * x.itemsize, strides)
    return xp.lib.stride_tricks.as_strided(x.reshape(x.size)[first:], shape, strides)


def add_to_pixels(bias: Array, y: Array) -> None:
    """Add the bias (C,) to contiguous (N, H, W, C) images, in place."""
    xp, (n, rows, columns, channels) = array_module(y), y.shape
    if xp is not np or y.size < FEW:
        y += bias
        return
    # Adding a few channels at a time takes twice as long as a row of pixels, and that more than an image.
    row = np.empty((columns, channels), y.dtype)
    row[...] = bias
    repeated = row if n < MANY else np.tile(row, (rows, 1))
    lines = y.reshape(y.size // max(repeated.size, 1), repeated.size)
    lines += repeated.reshape(repeated.size)


def pad_rows_and_columns(x: Array, padding: tuple[int, int], value: float = 0) -> Array:
    """(N, H, W, C) images with a border of ``value``; negative padding cuts a border off."""
    x, (ph, pw) = cut_off(x, padding)
    if not ph and not pw:
        return x
    n, h, w, c = x.shape
    padded = array_module(x).zeros((n, h + 2 * ph, w + 2 * pw, c), x.dtype)
    if value:
        padded.fill(value)
    padded[:, ph : ph + h, pw : pw + w] = x
    return padded


def extended(x: Array, extra: tuple[int, int], value: float = 0) -> Array:
    """(N, H, W, C) images with ``extra`` rows below and columns on the right, full of ``value``."""
    if extra == (0, 0):
        return x
    n, h, w, c = x.shape
    larger = array_module(x).full_like(x, value, shape=(n, h + extra[0], w + extra[1], c))
    larger[:, :h, :w] = x
    return larger


def bordered(x: Array, geometry: Geometry, value: float = 0) -> Array:
    """(N, H, W, C) images with all the border that windows see, full of ``value``."""
    return pad_rows_and_columns(extended(x, geometry.extra, value), geometry.padding, value)


def cut_off(x: Array, padding: tuple[int, int]) -> tuple[Array, tuple[int, int]]:
    """(N, H, W, C) images with negative padding carried out, and the padding that is left to do."""
    if min(padding) >= 0:
        return x, padding
    (ph, pw), (_, h, w, _) = padding, x.shape
    return x[:, max(-ph, 0) : h + min(ph, 0), max(-pw, 0) : w + min(pw, 0)], (max(ph, 0), max(pw, 0))


def blocks(n: int, bytes_each: int, limit: int) -> list[slice]:
    """``n`` images in runs of at least one, whose work areas of ``bytes_each`` stay under ``limit`` bytes."""
    size = max(limit // max(bytes_each, 1), 1)
    if n <= size:
        return [slice(0, n)] if n else []
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


def pair(value: Pair, name: str, least: int) -> tuple[int, int]:
    """A setting for rows and columns, given as one number or two."""
    if type(value) is int and value >= least:
        return value, value
    both = value if np.iterable(value) else (value, value)
    if not are_integers(both, 2, least):
        raise ValueError(f"{name} must be one or two integers of at least {least}, got {value}")
    rows, columns = both
    return int(rows), int(columns)


def are_integers(values: Any, count: int, least: float) -> bool:
    """Whether ``values`` are ``count`` integers, NumPy's among them, of at least ``least``."""
    return (
        isinstance(values, (tuple, Sequence, np.ndarray))
        and len(values) == count
        and all([isinstance(v, (int, np.integer)) and v >= least for v in values])
    )


def check_windows_fit(size: tuple[int, int], geometry: Geometry) -> None:
    """Raise ValueError where images of this size have no window."""
    if min(geometry.output(*size)) < 1:
        raise ValueError(
            f"a window of {geometry.kernel} with dilation {geometry.dilation} does not fit into images of "
            f"{size} padded by {geometry.padding}; use a smaller kernel or more padding"
        )
