"""The sum of each window on (N, H, W, C) images, and its transpose, for means and for enlarged images.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``pool.py``. The sum of a window is that of
its columns' sums: kh + kw additions, not kh kw, and the first kh are of whole rows of an image, which lie in
one piece. A few images are taken at a time, so that each step finds them in cache.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..device import Array, array_module
from .argmax_pool import pixels
from .blocks import in_long_rows
from .geometry import Geometry, blocks, bordered

CACHE = 1 << 21  # bytes of images taken at a time
LONG_PIXEL = 64  # channels; ``repeat`` copies shorter pixels in a half of the time of broadcasting


def sums_of_windows(x: Array, geometry: Geometry, divisor: Array | float | None = None) -> Array:
    """(N, H, W, C) to (N, H', W', C), divided by ``divisor``."""
    rows, columns = geometry.output(*x.shape[1:3])
    down, across = taps(geometry, rows, columns)
    y = array_module(x).empty((len(x), rows, columns, x.shape[3]), x.dtype)
    for images in image_runs(x):
        part, out = bordered(x[images], geometry), y[images]
        with in_long_rows(lines(part)):
            tall = total([part[:, tap] for tap in down])
        total([tall[:, :, tap] for tap in across], out)
        if divisor is not None:
            out /= divisor
    return y


def spread_over_windows(
    g: Array, geometry: Geometry, height: int, width: int, divisor: Array | float | None = None
) -> Array:
    """(N, H', W', C), divided by ``divisor``, to (N, H, W, C): each pixel gets the sum of its windows'."""
    xp, (n, rows, columns, channels), (ph, pw) = array_module(g), g.shape, geometry.padding
    taps_down, taps_across = taps(geometry, rows, columns)
    down, across = geometry.stride
    padded_height, padded_width = height + 2 * ph + geometry.extra[0], width + 2 * pw + geometry.extra[1]
    side_by_side = are_tiles(geometry, height, width)
    d = xp.empty((n, height, width, channels), g.dtype)
    for images in image_runs(d):
        share = g[images] if divisor is None else g[images] / divisor
        if side_by_side:
            repeat_in_tiles(share, geometry.stride, d[images])
            continue
        tall = xp.empty((len(share), rows, padded_width, channels), g.dtype)
        spread(share.swapaxes(1, 2), taps_across, across, tall.swapaxes(1, 2))
        whole = (padded_height, padded_width) == (height, width)
        out = d[images] if whole else xp.empty((len(share), padded_height, padded_width, channels), g.dtype)
        with in_long_rows(lines(tall)):
            spread(lines(tall), taps_down, down, lines(out))
        if not whole:
            d[images] = out[:, ph : ph + height, pw : pw + width]
    return d


def repeat_in_tiles(share: Array, factors: tuple[int, int], out: Array) -> None:
    """Write each pixel of ``share`` to ``out`` as often as the factors say: nothing is added."""
    (n, rows, columns, channels), (down, across) = share.shape, factors
    tiles = out.reshape(n, rows, down, columns, across, channels)
    if channels < LONG_PIXEL:
        share = array_module(share).repeat(share, across, axis=2).reshape(n, rows, columns, across, channels)
        tiles[...] = share[:, :, None]
    elif type(share) is np.ndarray:  # whole pixels: a fifth to a third less time
        whole = pixels(out).reshape(tiles.shape[:-1])
        whole[...] = pixels(np.ascontiguousarray(share))[:, :, None, :, None]
    else:
        tiles[...] = share[:, :, None, :, None]


def are_tiles(geometry: Geometry, height: int, width: int) -> bool:
    """Whether windows stand side by side on images of this size, and cover all of them."""
    apart = geometry.stride == geometry.kernel and geometry.padding == (0, 0)
    return apart and not (height % geometry.kernel[0] or width % geometry.kernel[1])


def lines(x: Array) -> Array:
    """Images (N, H, W, C) as (N, H, W C): each line of an image as one row of a matrix."""
    n, height, width, channels = x.shape
    return x.reshape(n, height, width * channels)


def taps(geometry: Geometry, rows: int, columns: int) -> tuple[list[slice], list[slice]]:
    """The rows of images that each row of a window sees, and the columns that each column sees."""
    kh, kw = geometry.kernel
    down = [geometry.tap(i, 0, rows, columns)[0] for i in range(kh)]
    return down, [geometry.tap(0, j, rows, columns)[1] for j in range(kw)]


def image_runs(x: Array) -> list[slice]:
    """The images that are taken at a time; on a GPU all of them."""
    return blocks(len(x), x[:1].nbytes, CACHE if array_module(x) is np else max(x.nbytes, 1))


def total(parts: Sequence[Array], out: Array | None = None) -> Array:
    """The sum of the parts, in ``out`` where that is given."""
    first, *others = parts
    if out is None and not others:
        return first
    if not others:
        out[...] = first  # pyright: ignore
    else:
        out = array_module(first).add(first, others[0], out=out)
    for other in others[1:]:
        out += other
    return out


def spread(share: Array, taps: Sequence[slice], stride: int, out: Array) -> None:
    """Write to ``out`` the sum of ``share`` at each of the taps of axis 1."""
    count = share.shape[1]
    out[:, count * stride if len(taps) >= stride else 0 :] = 0
    for i, tap in enumerate(taps):
        if i < stride and i + stride < len(taps):  # with the tap that sees the same elements one place later
            array_module(out).add(share[:, 1:], share[:, :-1], out=out[:, tap][:, 1:])
            out[:, i], out[:, i + count * stride] = share[:, 0], share[:, -1]
        elif i < stride:  # nothing is there yet
            out[:, tap] = share
        elif i >= 2 * stride:
            out[:, tap] += share
