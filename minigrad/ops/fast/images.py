"""Images (N, H, W, C) in memory: views of them, borders, and parts that fit in the cache.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``fast/im2col.py``.
"""

from __future__ import annotations

import numpy as np

from ...device import Array, array_module
from ..geometry import with_border

Place = tuple[slice, slice]  # some images, and rows of their outputs
FEW = 4096  # elements to which a bias is added in the time of a call
MANY = 4  # images for which it pays to repeat a bias for a whole one


def pixels(x: np.ndarray) -> np.ndarray:
    """Images (..., H, W, C) as (..., H, W) elements where C > 0; NumPy copies these in half the time."""
    return x.view(np.dtype((np.void, x.shape[-1] * x.itemsize)))[..., 0] if x.shape[-1] else x


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


def padded_images(x: Array, padding: tuple[int, int]) -> Array:
    """(N, H, W, C) images with a border of zeros; negative padding cuts a border off."""
    x, padding = cut_off(x, padding)
    return with_border(x, padding, padding)


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
