"""Half precision: ops that add up many terms compute in float32, and round their results to float16.

A square of 300 is no float16 number, and a sum of some thousands of terms has two digits. So norms,
variances, the softmax family and losses get float32 arrays, and what comes back is float16 again, as in
PyTorch.
Lecture section: back-propagation. Lesson: 02_backpropagation, by ``op.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, cast

import numpy as np

from .dtypes import is_floating
from .pullback import OpResult, Pullback
from .tape import once

P = ParamSpec("P")


def half_in_single(function: Callable[P, OpResult]) -> Callable[P, OpResult]:
    """``function`` of arrays, which gets float32 where the first of them is float16.

    Its value is float16 where all floats are, else float32; each gradient has the dtype of its input.
    """
    compute = cast("Callable[..., OpResult]", function)

    @wraps(function)
    def computed(x: Any, *others: Any, **settings: Any) -> OpResult:
        if not is_half(x):
            return compute(x, *others, **settings)
        arrays = x, *others
        value, pullbacks = compute(*map(in_single, arrays), **settings)
        single = once(in_single)  # one array for all pullbacks

        def rounded(pullback: Pullback | None, a: Any) -> Pullback | None:
            if pullback is None or not is_floating(a):
                return pullback
            return wraps(pullback)(lambda g: pullback(single(g)).astype(a.dtype, copy=False))

        all_half = all(is_half(a) for a in arrays if is_floating(a))
        return value.astype(np.float16) if all_half else value, tuple(map(rounded, pullbacks, arrays))

    return cast("Callable[P, OpResult]", computed)


def in_single(x: Any) -> Any:
    """x as float32 if it is an array of floats."""
    return x.astype(np.float32, copy=False) if is_floating(x) else x


def is_half(x: Any) -> bool:
    """Whether x is an array of float16; a Python number is none."""
    return hasattr(x, "dtype") and x.dtype.char == "e"
