"""How the laws of assignment a8 draw numbers, compare arrays, and say what differs."""

from __future__ import annotations

from typing import Any

import numpy as np

from lessons.grading import Wrong


def counted(n: int, noun: str) -> str:
    return f"{n} {noun}{'' if n == 1 else 's'}"


def numbers(*key: int, shape: Any) -> np.ndarray:
    """Whole numbers from -9 to 9 without 0, as floats."""
    rng = np.random.default_rng(key)
    return (rng.integers(1, 10, shape) * rng.choice([-1, 1], shape)).astype(float)


def same(found: Any, wanted: np.ndarray, what: str) -> None:
    """``found`` is an array like ``wanted``, to 1e-12."""
    if type(found) is not np.ndarray or found.dtype != np.float64 or found.shape != wanted.shape:
        is_what = f"{found.dtype}{found.shape}" if isinstance(found, np.ndarray) else repr(found)[:60]
        raise Wrong(f"{what} is {is_what}, it should be an array, float64{wanted.shape}")
    if np.allclose(found, wanted, rtol=1e-12, atol=1e-12):
        return
    known = wanted != 0
    ratios = found[known] / wanted[known]
    if known.sum() > 1 and np.allclose(ratios, ratios[0], rtol=1e-9) and not found[~known].any():
        raise Wrong(f"{what} is {ratios[0]:.3g} times what it should be")
    at = int(np.flatnonzero(~np.isclose(found, wanted, rtol=1e-12, atol=1e-12))[0])
    raise Wrong(f"element {at} of {what} is {found[at]:.6g}, it should be {wanted[at]:.6g}")


def unchanged(x: np.ndarray, before: np.ndarray, what: str) -> None:
    if not np.array_equal(x, before):
        raise Wrong(f"{what} was changed: work on a copy")


def apart(found: np.ndarray, x: np.ndarray, what: str) -> None:
    if np.may_share_memory(found, x):
        raise Wrong(f"{what} is memory of the input: return a new array")
