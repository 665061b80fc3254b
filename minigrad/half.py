"""Half precision: 16 bits to store, 32 bits to compute with, in Micikevicius et al. 2018's words.

A square of 300 is no float16 number, a sum of some thousands of terms has two digits, and NumPy multiplies
matrices of float16 without BLAS, in 100 times the time. So an op of several steps gets its inputs as float32
arrays, and its value and the gradients of its inputs are rounded, once. A tape still holds 16-bit arrays: the
op runs again in its pullback, or its gradient is computed from the rounded value.
Lecture section: back-propagation. Lesson: 02_backpropagation, by ``op.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, cast

import numpy as np

from .device import Array
from .dtypes import floating, is_floating
from .memory import retained_arrays
from .pullback import OpResult, Pullback
from .tape import once, undo_broadcast

P = ParamSpec("P")
LEAST_NORMAL, THREE_QUARTERS = np.float32(2.0**-14), np.float32(0.75)
Run = Callable[[Array], tuple[Array, tuple[Pullback | None, ...]]]


def half_in_single(function: Callable[P, OpResult]) -> Callable[P, OpResult]:
    """``function`` of arrays, which gets float32 where the first of them is float16.

    Its value is float16 where all floats are, else float32; each gradient has the dtype of its input.
    Backward runs the function once more, for all its pullbacks. Settings that are functions, such as one that
    asks other ranks, are not called by that, but return what they did in the first run.
    """
    return computed_in_single(cast("Callable[..., OpResult]", function))


def loss_in_single(function: Callable[P, OpResult]) -> Callable[P, OpResult]:
    """``half_in_single`` of a loss, whose value stays float32: in float16 a scale of 2 ** 16 is infinite."""
    return computed_in_single(cast("Callable[..., OpResult]", function), rounds=False)


def layer_in_single(function: Callable[P, OpResult]) -> Callable[P, OpResult]:
    """``half_in_single`` of a layer, which rounds its first input to float16 where its weight is float16."""
    compute = cast("Callable[..., OpResult]", function)

    @wraps(function)
    def computed(x: Any, *others: Any, **settings: Any) -> OpResult:
        try:
            half = x.dtype.char == "e" or others and others[0].dtype.char == "e"
        except AttributeError:
            half = any(map(is_half, others[:1]))
        if not half:
            return compute(x, *others, **settings)
        return run_in_single(compute, (x if is_half(x) else floating(x, *others[:1]), *others), settings)

    return cast("Callable[P, OpResult]", computed)


def computed_in_single(compute: Callable[..., OpResult], rounds: bool = True) -> Any:
    """``half_in_single``; the value is rounded or not."""

    @wraps(compute)
    def computed(x: Any, *others: Any, **settings: Any) -> OpResult:
        try:
            half = x.dtype.char == "e"
        except AttributeError:  # a number, which has no dtype
            half = any(map(is_half, others))
        if half:
            return run_in_single(compute, (x, *others), settings, rounds)
        return compute(x, *others, **settings)

    return computed


def run_in_single(
    compute: Callable[..., OpResult], arrays: tuple[Any, ...], settings: dict[str, Any], rounds: bool = True
) -> OpResult:
    """``compute`` of float32 arrays, and pullbacks that hold no floats but the 16-bit ``arrays``."""
    first = {name: Recorded(s) if callable(s) else s for name, s in settings.items()}
    value, pullbacks = compute(*map(in_single, arrays), **first)
    some = [pullback is not None and is_floating(a) for a, pullback in zip(arrays, pullbacks, strict=True)]

    def second_run(g: Array) -> tuple[Array, tuple[Pullback | None, ...]]:
        again = {name: s.replay() if isinstance(s, Recorded) else s for name, s in first.items()}
        return in_single(g), compute(*map(in_single, arrays), **again)[1]

    if any(is_floating(a) for a in retained_arrays(list(pullbacks))):
        run = once(second_run)
    else:  # bytes, say, which number the largest elements of windows
        run = once(lambda g: (in_single(g), pullbacks))
    all_half = all(is_half(a) for a in arrays if is_floating(a))
    return rounded(value, np.float16) if rounds and all_half else value, tuple(
        pullback_of(compute, run, i, a.shape, a.dtype) if needed else None
        for i, (a, needed) in enumerate(zip(arrays, some, strict=True))
    )


def pullback_of(
    compute: Callable[..., OpResult], run: Run, i: int, shape: tuple[int, ...], dtype: Any
) -> Pullback:
    """The pullback to input i, of this shape and dtype: that of a ``run``, summed up and then rounded."""

    def pullback(g: Array) -> Array:
        single, pullbacks = run(g)
        return rounded(undo_broadcast(cast(Pullback, pullbacks[i])(single), shape), dtype)

    pullback.__module__, pullback.__qualname__ = compute.__module__, f"{compute.__qualname__}.<locals>.to_{i}"
    return pullback  # an error names the op by it


class Recorded:
    """A function whose results are noted, so that ``replay`` can return them once more."""

    def __init__(self, function: Callable[..., Any]):
        self.function, self.results = function, []

    def __call__(self, *arguments: Any, **settings: Any) -> Any:
        self.results.append(self.function(*arguments, **settings))
        return self.results[-1]

    def replay(self) -> Callable[..., Any]:
        """A function that returns the noted results, one after the other, and then calls the function."""
        results = iter(self.results)

        def replayed(*arguments: Any, **settings: Any) -> Any:
            for result in results:
                return result
            return self.function(*arguments, **settings)

        return replayed


def half_by_value(to_x: Callable[..., Array]) -> Callable[[Callable[P, OpResult]], Callable[P, OpResult]]:
    """``half_in_single`` of one array, whose gradient is ``to_x(y, g, **settings)``, from the value y.

    A tape holds the rounded value, which the next op often needs as well, and not the input.
    """

    def decorate(function: Callable[P, OpResult]) -> Callable[P, OpResult]:
        compute = cast("Callable[..., OpResult]", function)

        @wraps(function)
        def computed(x: Any, **settings: Any) -> OpResult:
            if x.dtype.char != "e":
                return compute(x, **settings)
            y = rounded(compute(in_single(x), **settings)[0], x.dtype)
            return y, (lambda g: rounded(to_x(in_single(y), in_single(g), **settings), y.dtype),)

        return cast("Callable[P, OpResult]", computed)

    return decorate


def in_single(x: Any) -> Any:
    """x as float32 if it is an array of floats."""
    return x.astype(np.float32, copy=False) if is_floating(x) else x


def subnormal_steps(x: np.ndarray) -> np.ndarray:
    """float32 x, rounded to multiples of 2 ** -24 where float16 has no others; NumPy takes 25 times as long.

    Beside 0.75 float32 has these steps. Gradients of a loss that is not scaled are mostly as small.
    """
    small = abs(x) < LEAST_NORMAL
    if not small.any():
        return x
    y = np.copysign(x + THREE_QUARTERS - THREE_QUARTERS, x)
    np.copyto(y, x, where=~small)
    return y


def widened(x: Array) -> Array:
    """x, or of float16 the float32 array of the same numbers."""
    return x.astype(np.float32) if x.dtype.char == "e" else x


def rounded(x: Array, dtype: Any) -> Array:
    """A copy of x in ``dtype``; what is too large for it is infinite, as a scaled loss expects."""
    with np.errstate(over="ignore", invalid="ignore"):
        if type(x) is np.ndarray and x.ndim and dtype == np.float16 and x.dtype == np.float32:
            x = subnormal_steps(x)
        return x.astype(dtype)


def is_half(x: Any) -> bool:
    """Whether x is an array of float16; a Python number is none."""
    return hasattr(x, "dtype") and x.dtype.char == "e"
