"""What an op's function returns: its value, and one pullback for each of its inputs.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``op.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .device import Array

Pullback = Callable[[Array], Array]
OpResult = tuple[Array, tuple[Pullback | None, ...]]


def shape_of(x: Any) -> tuple[int, ...]:
    """The shape of an operand; a Python number has none."""
    return getattr(x, "shape", ())
