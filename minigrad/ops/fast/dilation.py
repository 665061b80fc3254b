"""A convolution with a dilation, as one without it on several smaller images.

A window sees rows and columns of an image that are a dilation apart. All of one remainder make an image of
their own, on which the window has no gaps ("space to batch"; compare Yu and Koltun, "Multi-scale context
aggregation by dilated convolutions", 2016).
Lecture section: back-propagation. Lesson: 02_backpropagation, by ``fast/conv.py``.
"""

from __future__ import annotations

from ...device import Array, array_module
from ..conv import Algorithm, Convolved
from ..geometry import Geometry, with_border
from .images import padded_images


def space_to_batch(algorithm: Algorithm) -> Algorithm:
    """``algorithm`` for dilation 1, applied to the rows and columns of each remainder; for stride 1."""

    def with_dilation(x: Array, w: Array, geometry: Geometry) -> Convolved:
        dilation, (ph, pw), (height, width) = geometry.dilation, geometry.padding, x.shape[1:3]
        if dilation == (1, 1):
            return algorithm(x, w, geometry)
        if ph % dilation[0] or pw % dilation[1]:
            padded = padded_images(x, (ph, pw))
            y, (to_padded, to_kernel) = with_dilation(padded, w, geometry._replace(padding=(0, 0)))
            return y, (lambda g: to_padded(g)[:, ph : ph + height, pw : pw + width], to_kernel)
        plain = geometry._replace(dilation=(1, 1), padding=(ph // dilation[0], pw // dilation[1]))
        y, (to_image, to_kernel) = algorithm(split(x, dilation), w, plain)
        return join(y, dilation, geometry.output(height, width)), (
            lambda g: join(to_image(split(g, dilation)), dilation, (height, width)),
            lambda g: to_kernel(split(g, dilation)),
        )

    return with_dilation


def smaller(count: int, height: int, width: int, dilation: tuple[int, int]) -> tuple[int, int, int]:
    """How many images there are without dilation, and their rows and columns."""
    down, across = dilation
    return count * down * across, -(-height // down), -(-width // across)


def split(x: Array, dilation: tuple[int, int]) -> Array:
    """Images (N, H, W, C) by the remainders of their rows and columns, with zeros where one has fewer."""
    (down, across), (n, height, width, channels) = dilation, x.shape
    count, rows, columns = smaller(n, height, width, dilation)
    x = with_border(x, (0, 0), (rows * down - height, columns * across - width))
    x = x.reshape(n, rows, down, columns, across, channels).transpose(2, 4, 0, 1, 3, 5)
    return x.reshape(count, rows, columns, channels)


def join(x: Array, dilation: tuple[int, int], size: tuple[int, int]) -> Array:
    """The inverse of ``split`` for images of this size."""
    (down, across), (count, rows, columns, channels) = dilation, x.shape
    n = count // (down * across)
    x = x.reshape(down, across, n, rows, columns, channels).transpose(2, 3, 0, 4, 1, 5)
    x = x.reshape(n, rows * down, columns * across, channels)
    return array_module(x).ascontiguousarray(x[:, : size[0], : size[1]])
