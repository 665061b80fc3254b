"""What the taps of pooling windows see of images (N, H, W, C): for a kernel of 2 x 2, four arrays.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``pool.py``.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..device import Array
from .geometry import Geometry, Pair, bordered, check_windows_fit, pair

Place = tuple[slice, ...]


def taps(x: Array, geometry: Geometry, border: float = 0) -> list[Array]:
    """For each tap, in reading order, what it sees in all windows on images x: (N, H', W', C)."""
    padded = bordered(x, geometry, border)
    return [padded[place] for place in places(x.shape, geometry)]


def add_at_taps(images: Array, parts: Iterable[Array], geometry: Geometry) -> Array:
    """Images plus the part of each tap where it sees them, the transpose of ``taps``; writes into them."""
    (ph, pw), (_, height, width, _) = geometry.padding, images.shape
    padded = bordered(images, geometry)
    for place, part in zip(places(images.shape, geometry), parts, strict=True):
        padded[place] += part
    return padded[:, ph : ph + height, pw : pw + width]


def places(shape: tuple[int, ...], geometry: Geometry) -> list[Place]:
    """For each tap, in reading order, its place in all windows on the padded images of this shape."""
    rows, columns = geometry.output(*shape[1:3])
    kh, kw = geometry.kernel
    return [(slice(None), *geometry.tap(i, j, rows, columns)) for i in range(kh) for j in range(kw)]


def pool_geometry(
    x: Array,
    kernel: Pair,
    stride: Pair | None,
    padding: Pair,
    dilation: Pair = 1,
    ceil_mode: bool = False,
) -> Geometry:
    """The windows on images x (N, C, H, W) that the settings of a pool describe; raises ValueError."""
    if x.ndim != 4:
        raise ValueError(f"pooling takes images (N, C, H, W), got shape {x.shape}")
    sizes = pair(kernel, "kernel", 1)
    steps = sizes if stride is None else pair(stride, "stride", 1)
    geometry = Geometry(sizes, steps, pair(padding, "padding", 0), pair(dilation, "dilation", 1))
    if any(geometry.padding):
        check_padding(geometry)
    if ceil_mode:
        geometry = geometry._replace(extra=rounded_up(x.shape[2:], geometry))
    check_windows_fit(x.shape[2:], geometry)
    return geometry


def check_padding(geometry: Geometry) -> None:
    """Raise ValueError where a window may see more of the border than of the images."""
    if any(2 * p > extent for p, extent in zip(geometry.padding, geometry.extent, strict=True)):
        raise ValueError(
            f"padding {geometry.padding} is more than half of the window {geometry.extent}; use less padding"
        )


def rounded_up(image: tuple[int, int], geometry: Geometry) -> tuple[int, int]:
    """The border after rows and columns with which a last window, that begins before it, fits."""
    extra = []
    for n, extent, step, p in zip(image, geometry.extent, geometry.stride, geometry.padding, strict=True):
        last = min(-(-(n + 2 * p - extent) // step), (n + p - 1) // step)
        extra.append(max(last * step + extent - n - 2 * p, 0))
    rows, columns = extra
    return rows, columns
