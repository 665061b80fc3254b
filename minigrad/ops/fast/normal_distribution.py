"""The normal distribution function for loops, of several numbers at a time.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``fast/activation_loops.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...loops import ScalarFunction
from ...normal_distribution import DOUBLE, SINGLE
from .exponential import exp, is_single


@ScalarFunction
def normal(dtype: np.dtype[Any]) -> Callable[..., Any]:
    """The distribution function and the density of a number, for loops."""
    k, coefficients = SINGLE if is_single(dtype) else DOUBLE
    k, one, two, minus_half, peak = map(dtype.type, (k, 1, 2, -0.5, 1 / math.sqrt(2 * math.pi)))
    last, *terms = map(dtype.type, coefficients[::-1])
    middle = len(terms) // 2
    first, rest = tuple(terms[:middle]), tuple(terms[middle:])  # one loop would be too long to be unrolled

    def normal(x: Any) -> Any:
        t = one / (abs(x) + k)
        s = one - two * k * t
        p = last
        for term in first:
            p = p * s + term
        for term in rest:
            p = p * s + term
        e = exp(x * x * minus_half)
        tail = p * t * e
        return (one - tail if x > 0 else tail), e * peak

    return normal
