"""Whether convolutions may use algorithms that round more than plain sums of products.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``ops/fast/conv.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

exact: ContextVar[bool] = ContextVar("minigrad.exact_convolutions", default=False)


@contextmanager
def exact_convolutions(mode: bool = True) -> Iterator[None]:
    """Inside the ``with``, convolutions of this thread round like plain sums of products.

    "auto" does not take Winograd's algorithms then, whose errors in float32 are up to ten times as large:
    1e-5 of the largest element instead of 1e-6. With ``mode=False`` it may take them again.
    """
    token = exact.set(mode)
    try:
        yield
    finally:
        exact.reset(token)
