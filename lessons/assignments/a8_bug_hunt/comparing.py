"""The numbers that the laws of assignment a8 draw, and their comparisons of arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from minigrad_course.grading import Wrong
from minigrad_course.grading.array_checks import check_private, check_unchanged


def numbers(*key: int, shape: Any) -> np.ndarray:
    """Whole numbers from -9 to 9 without 0, as floats."""
    rng = np.random.default_rng(key)
    return (rng.integers(1, 10, shape) * rng.choice([-1, 1], shape)).astype(float)


def same(x: Any, expected: np.ndarray, what: str) -> None:
    """Raise Wrong unless ``x`` is an array like ``expected``, to 1e-12."""
    if type(x) is not np.ndarray or x.dtype != np.float64 or x.shape != expected.shape:
        is_what = f"{x.dtype}{x.shape}" if isinstance(x, np.ndarray) else repr(x)[:60]
        raise Wrong(f"{what} is {is_what}, it should be an array, float64{expected.shape}")
    if np.allclose(x, expected, rtol=1e-12, atol=1e-12):
        return
    known = expected != 0
    ratios = x[known] / expected[known]
    if known.sum() > 1 and np.allclose(ratios, ratios[0], rtol=1e-9) and not x[~known].any():
        raise Wrong(f"{what} is {ratios[0]:.3g} times what it should be")
    at = int(np.flatnonzero(~np.isclose(x, expected, rtol=1e-12, atol=1e-12))[0])
    raise Wrong(f"element {at} of {what} is {x[at]:.6g}, it should be {expected[at]:.6g}")


def unchanged(x: np.ndarray, before: np.ndarray, what: str) -> None:
    check_unchanged({what: x}, [before])


def apart(result: np.ndarray, x: np.ndarray, what: str) -> None:
    check_private(what, result, {"the input": x})
