"""Exponentials and a logarithm for loops, of several numbers at a time.

In float32 NumPy's take one and a half times as long on processors with AVX-512, on others 2 to 20 times.
Lecture section: back-propagation. Lesson: 02_backpropagation, by ``fast/activation_loops.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...loops import ScalarFunction


def is_single(dtype: np.dtype[Any]) -> bool:
    return dtype == np.float32


@ScalarFunction
def pieces(dtype: np.dtype[Any]) -> Callable[..., Any]:
    """x -> (e ** r - 1, 2 ** a, 2 ** b), whose x is r + (a + b) log 2, and r as small as it can be.

    The polynomial's next term is below half an eps. 2 ** (a + b) alone may be beyond the numbers of a dtype
    where e ** x is not.
    """
    info, number, integer = np.finfo(dtype), dtype.type, np.int32 if is_single(dtype) else np.int64
    least, most = number(np.log(info.smallest_subnormal) - 1), number(np.log(info.max) + 1)
    bias, places, half, per_log_2 = 1 - info.minexp, info.nmant, number(0.5), number(1 / math.log(2))
    high, low = number(0.693145751953125), number(1.4286068203094172e-6)  # their sum is log 2
    last, *terms = (number(1 / math.factorial(k)) for k in range(7 if is_single(dtype) else 13, 0, -1))
    terms = tuple(terms)

    def pieces(x: Any) -> Any:
        x = most if x > most else x
        x = least if x < least else x
        n = np.floor(x * per_log_2 + half)
        r = x - n * high - n * low
        p = last
        for term in terms:
            p = p * r + term
        n = integer(n)
        a = integer(n >> 1)
        first, second = integer((a + bias) << places), integer((n - a + bias) << places)
        return p * r, first.view(number), second.view(number)

    return pieces


@ScalarFunction
def exp(dtype: np.dtype[Any]) -> Callable[..., Any]:
    """e ** x, within an eps."""
    one = dtype.type(1)

    def exp(x: Any) -> Any:
        p, first, second = pieces(x)
        return (p + one) * first * second

    return exp


@ScalarFunction
def expm1(dtype: np.dtype[Any]) -> Callable[..., Any]:
    """e ** x - 1 of numbers up to 1, with all digits of small ones."""
    one = dtype.type(1)

    def expm1(x: Any) -> Any:
        p, first, second = pieces(x)
        scale = first * second
        return p * scale + (scale - one)

    return expm1


@ScalarFunction
def log1p(dtype: np.dtype[Any]) -> Callable[..., Any]:
    """log(1 + x) of numbers from 0 to 1, less log sqrt(2) where that makes it smaller.

    It is the series 2 (z + z ** 3 / 3 + ...) of z = x / (x + 2), or of (1 + x - sqrt(2)) / (1 + x + sqrt(2)).
    """
    number, root = dtype.type, math.sqrt(2)
    zero, two, half_log_2, less, more = map(number, (0, 2, math.log(root), root - 1, root + 1))
    last, *terms = (number(2 / (2 * k + 1)) for k in range(5 if is_single(dtype) else 11, -1, -1))
    terms = tuple(terms)

    def log1p(x: Any) -> Any:
        z = (x - less) / (x + more) if x > less else x / (x + two)
        p = last
        for term in terms:
            p = p * (z * z) + term
        return p * z + (half_log_2 if x > less else zero)

    return log1p
