"""The numbers that the laws of assignment a8 draw, and their comparisons of arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from lessons.grading.array_checks import check_equal, check_like, check_private, check_unchanged


def numbers(*key: int, shape: Any) -> np.ndarray:
    """Whole numbers from -9 to 9 without 0, as floats."""
    rng = np.random.default_rng(key)
    return (rng.integers(1, 10, shape) * rng.choice([-1, 1], shape)).astype(float)


def same(x: Any, expected: np.ndarray, what: str) -> None:
    """Raise Wrong unless ``x`` is an array like ``expected``, to 1e-12."""
    check_like(what, x, expected.shape, np.float64)
    check_equal(what, x, expected, atol=1e-12 * max(1.0, abs(expected).max(initial=0)), factor_rtol=1e-9)


def unchanged(x: np.ndarray, before: np.ndarray, what: str) -> None:
    check_unchanged({what: x}, [before])


def apart(result: np.ndarray, x: np.ndarray, what: str) -> None:
    check_private(what, result, {"the input": x})
