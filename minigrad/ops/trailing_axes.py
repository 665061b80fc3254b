"""The last axes of an input as one, for ops that normalise what they call features.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``layer_norm.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, cast

from ..device import Array
from ..pullback import OpResult, Pullback, shape_of

P = ParamSpec("P")


def over_trailing_axes(function: Callable[P, OpResult]) -> Callable[P, OpResult]:
    """``function`` of x (..., features) and parameters (features,), for parameters of several axes too.

    Raises ValueError unless all parameters have one shape, which is that of x's last axes.
    """

    @wraps(function)
    def flattened(x: Array, *parameters: Array, **settings: Any) -> OpResult:
        shapes = [shape_of(parameter) for parameter in parameters]
        shape, n = shapes[0], len(shapes[0])
        if not n or shape_of(x)[-n:] != shape or any(other != shape for other in shapes):
            raise ValueError(
                f"{function.__name__} of x {shape_of(x)} needs parameters that all have the shape of its "
                f"last axes, such as {shape_of(x)[-max(n, 1) :] or '(features,)'}, got "
                f"{', '.join(map(str, shapes))}"
            )
        if n == 1:
            return cast(Any, function)(x, *parameters, **settings)
        rows = (*x.shape[:-n], math.prod(shape))

        def unflattened(a: Array) -> Array:
            return a.reshape((*a.shape[:-1], *shape))

        def reshaped(pullback: Pullback) -> Pullback:
            return wraps(pullback)(lambda g: unflattened(pullback(g.reshape(rows))))

        flat = (parameter.reshape(rows[-1]) for parameter in parameters)
        value, pullbacks = cast(Any, function)(x.reshape(rows), *flat, **settings)
        return unflattened(value), tuple(map(reshaped, pullbacks))

    return cast("Callable[P, OpResult]", flattened)
