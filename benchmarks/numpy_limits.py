"""What NumPy alone needs for a row of ``ops.py``: its passes and products, on arrays that are there already.

No tape, no checks, nothing allocated: the fewest calls of NumPy that give the value and the gradients. Where
they take longer than PyTorch, they are what stands in the way of a row. A limit of a convolution holds its
matrix products only, and no copies.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Calls = Callable[[], object]


def relu(*shape: int) -> Calls:
    """One pass forward; the mask, as integers, and a product of bits backward."""
    x, g = normal(2, *shape)
    mask, y, d = np.empty(shape, bool), np.empty_like(x), np.empty_like(x)
    bits, g_bits = d.view(np.int32), g.view(np.int32)

    def calls() -> None:
        np.clip(x, 0, np.inf, out=y)
        np.greater(y, 0, out=mask)
        np.copyto(bits, mask)
        np.multiply(bits, g_bits, out=bits)

    return calls


def leaky_relu(*shape: int) -> Calls:
    """A product and a maximum forward; 0 or 1 clipped to the slope or 1, and a product backward."""
    x, g = normal(2, *shape)
    mask, y, d = np.empty(shape, bool), np.empty_like(x), np.empty_like(x)

    def calls() -> None:
        np.multiply(x, 0.01, out=y)
        np.maximum(x, y, out=y)
        np.greater(y, 0, out=mask)
        np.copyto(d, mask)
        np.clip(d, 0.01, 1, out=d)
        np.multiply(d, g, out=d)

    return calls


def sigmoid(*shape: int) -> Calls:
    """1 / (1 + e ** -x), of which the exponential takes most; backward g y (1 - y)."""
    x, g = normal(2, *shape)
    y, d = np.empty_like(x), np.empty_like(x)

    def calls() -> None:
        np.negative(x, out=y)
        np.exp(y, out=y)
        np.add(y, 1, out=y)
        np.divide(1, y, out=y)
        np.subtract(1, y, out=d)
        np.multiply(d, y, out=d)
        np.multiply(d, g, out=d)

    return calls


def absolute(*shape: int) -> Calls:
    """One pass forward; the sign as a difference of masks, and a product backward."""
    x, g = normal(2, *shape)
    above, below, y, d = np.empty(shape, bool), np.empty(shape, bool), np.empty_like(x), np.empty_like(x)

    def calls() -> None:
        np.abs(x, out=y)
        np.greater(x, 0, out=above)
        np.less(x, 0, out=below)
        np.subtract(above.view(np.int8), below.view(np.int8), out=above.view(np.int8))
        np.multiply(g, above.view(np.int8), out=d)

    return calls


def sums_of_rows(*shape: int) -> Calls:
    """One pass of sums with short chains; one copy of the gradient to all elements of a row."""
    (x,) = normal(1, *shape)
    total, d = np.empty(shape[0], np.float32), np.empty_like(x)

    def calls() -> None:
        np.einsum("nc->n", x, out=total)
        np.copyto(d, total[:, None])

    return calls


def gather(*shape: int) -> Calls:
    """The check of the indices and their places in memory; one pass of ``take``, and one of ``add.at``."""
    x, g = normal(2, *shape).reshape(2, -1)
    indices = np.random.default_rng(2).integers(0, shape[1], shape)
    rows = np.arange(shape[0])[:, None] * shape[1]
    places, y, d = np.empty_like(indices), np.empty(shape, np.float32), np.empty_like(x)

    def calls() -> None:
        indices.view(np.uint64).max()
        np.add(indices, rows, out=places)
        np.take(x, places, mode="wrap", out=y)
        d.fill(0)
        np.add.at(d, places.reshape(-1), g)

    return calls


def normal(count: int, *shape: int) -> np.ndarray:
    """So many arrays of one shape, (count, *shape), in float32."""
    return np.random.default_rng(0).standard_normal((count, *shape), np.float32)


LIMITS: dict[str, Callable[[], Calls]] = {  # by the title of the row
    "relu 1M": lambda: relu(1024, 1024),
    "relu 64x32x32x32": lambda: relu(64, 32, 32, 32),
    "leaky_relu 1M": lambda: leaky_relu(1024, 1024),
    "sigmoid 1M": lambda: sigmoid(1024, 1024),
    "abs 1M": lambda: absolute(1024, 1024),
    "sum of rows 1M": lambda: sums_of_rows(1024, 1024),
    "gather 1M": lambda: gather(1024, 1024),
}
