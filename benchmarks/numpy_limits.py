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
    """One pass forward; the mask and a product backward."""
    x, g = normal(2, *shape)
    zero, mask, y, d = np.zeros_like(x), np.empty(shape, bool), np.empty_like(x), np.empty_like(x)

    def calls() -> None:
        np.maximum(x, zero, out=y)
        np.greater(y, 0, out=mask)
        np.multiply(g, mask, out=d)

    return calls


def normal(count: int, *shape: int) -> np.ndarray:
    """So many arrays of one shape, (count, *shape), in float32."""
    return np.random.default_rng(0).standard_normal((count, *shape), np.float32)


LIMITS: dict[str, Callable[[], Calls]] = {  # by the title of the row
    "relu 1M": lambda: relu(1024, 1024),
    "relu 64x32x32x32": lambda: relu(64, 32, 32, 32),
}
