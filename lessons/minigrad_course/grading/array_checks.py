"""Checks of arrays that a submission returned or changed; each raises Wrong with the reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .assignment import Wrong


def check_like(label: str, x: Any, shape: tuple[int, ...], dtype: Any) -> None:
    """Raise Wrong unless ``x`` is an array of this shape and dtype."""
    if type(x) is not np.ndarray:  # a subclass may define its own comparison
        raise Wrong(f"{label} is {'None' if x is None else f'a {type(x).__name__}'}, not an array")
    if x.shape != shape:
        raise Wrong(f"{label} has shape {x.shape}, it should be {shape}")
    if x.dtype != dtype:
        raise Wrong(f"{label} is {x.dtype}, it should be {np.dtype(dtype)}")


def check_equal(
    label: str, x: np.ndarray, expected: np.ndarray, atol: float = 0.0, factor_rtol: float = 1e-6
) -> None:
    """Raise Wrong where ``x`` differs from ``expected``, an array of its shape, by more than ``atol``.

    Where ``x`` is a multiple of ``expected``, up to ``factor_rtol`` (relative), the message names the factor.
    """
    difference = abs(x - expected)
    if (difference <= atol).all():
        return
    if expected.any() and not x.any():
        raise Wrong(f"{label} is 0 everywhere, it should not be")
    at = np.unravel_index(np.argmax(np.where(np.isnan(difference), np.inf, difference)), x.shape)
    largest = np.unravel_index(np.argmax(abs(expected)), expected.shape)
    factor = x[largest] / expected[largest] if expected[largest] else np.nan
    if (
        x.size > 1
        and abs(factor - 1) > factor_rtol
        and np.allclose(x, factor * expected, rtol=factor_rtol, atol=1e-3 * factor_rtol * abs(expected).max())
    ):
        raise Wrong(f"{label} is {factor:.4g} times what it should be")
    place = f" at {', '.join(map(str, at))}" if at else ""
    is_, should = (f"{values[at]:.6g}" for values in (x, expected))
    if is_ == should:  # they differ in the last bits only
        is_, should = (f"{values[at]:.17g}" for values in (x, expected))
    raise Wrong(f"{label} is {is_}{place}, it should be {should}")


def check_private(label: str, x: np.ndarray, others: Mapping[str, np.ndarray]) -> None:
    """Raise Wrong where ``x`` shares memory with one of the others."""
    for name, other in others.items():
        if np.may_share_memory(x, other):
            raise Wrong(f"{label} is memory of {name}: return a new array")


def check_unchanged(inputs: Mapping[str, np.ndarray], before: Sequence[np.ndarray]) -> None:
    """Raise Wrong where an input differs, in any bit, from its copy in ``before``."""
    for (name, x), old in zip(inputs.items(), before, strict=True):
        if x.tobytes() != old.tobytes():
            raise Wrong(f"{name} was changed: work on a copy")


def enumeration(items: Sequence[Any]) -> str:
    """``1, 2 and 3``."""
    *first, last = map(str, items)
    return f"{', '.join(first)} and {last}" if first else last
