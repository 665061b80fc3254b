"""Laws of minigrad/bfloat16.py: a number is rounded to the nearest, and an op rounds what it returns.

The oracles are fractions and the op in float32. A law returns nothing or raises AssertionError; the seeded
bugs use the same laws.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from minigrad import Tape, Tensor
from minigrad.bfloat16 import bfloat16
from minigrad.device import Array, to_host
from minigrad.tape import finish_weights, undo_broadcast
from minigrad.testing import DEVICE, Op, is_float, on_device

LEAST, MOST = Fraction(1, 2**133), Fraction(2**8 - 1) * 2**120  # subnormal, and finite


def nearest(x: float) -> float:
    """The nearest bfloat16, of two the one whose last bit is 0: 8 binary digits, exponents of float32."""
    if math.isnan(x) or math.isinf(x):
        return x
    exact = Fraction(abs(x))
    exponent = max(math.frexp(abs(x))[1] - 1, -126) if x else 0  # abs(x) = m 2 ** exponent, m from 1 to 2
    step = Fraction(2) ** (exponent - 7)
    value = round(exact / step) * step  # Python rounds halves to even
    rounded = math.inf if value > MOST else float(value)
    return math.copysign(rounded, x)


def rounds_like_fractions(rounded: Callable[[Array], Array], bits: np.ndarray) -> None:
    """Each float32 with these bits goes to the ``nearest`` bfloat16, of its sign; NaN stays NaN."""
    x = bits.astype(np.uint32).view(np.float32)
    y = to_host(rounded(on_device(x)))
    assert y.dtype == np.float32, f"rounded to {y.dtype}"
    expected = np.array([nearest(float(v)) for v in x], np.float32)
    same = (y.view(np.uint32) == expected.view(np.uint32)) | (np.isnan(y) & np.isnan(expected))
    assert same.all(), f"{x[~same][:3]} becomes {y[~same][:3]}, and not {expected[~same][:3]}"


def rounds_like_integers(rounded: Callable[[Array], Array], bits: np.ndarray) -> None:
    """The same for many, by 64-bit integers: the upper 16 bits, and one more where the lower ones are more
    than half of it, or half and the upper are odd."""
    bits = bits.astype(np.uint32)
    y = to_host(rounded(on_device(bits.view(np.float32))))
    upper, lower = np.divmod(bits.astype(np.int64), 1 << 16)
    upper += (lower > 1 << 15) | ((lower == 1 << 15) & (upper % 2 == 1))
    is_nan = np.isnan(bits.view(np.float32))
    assert np.array_equal(np.isnan(y), is_nan), "NaN does not stay NaN, or something else becomes it"
    same = y.view(np.uint32) == upper * (1 << 16)
    assert (same | is_nan).all(), f"of {bits[~(same | is_nan)][:3]}"


def is_rounded_to_bfloat16(f: Op, *inputs: Any) -> None:
    """Value and gradients are those of float32, rounded, where backward runs after the ``with``."""
    singles = [x.astype(np.float32) if is_float(x) else x for x in inputs]
    y, entry = entry_of(f, singles)
    with bfloat16():
        z, rounding = entry_of(f, singles)
    same = np.array_equal(to_host(z.data), of_array(y.data), equal_nan=True)
    assert same, f"{z.data} is not {y.data} rounded"
    assert z.dtype == y.dtype and len(entry) == len(rounding)
    g = on_device(np.cos(1 + 2 * np.arange(y.size)).reshape(y.shape).astype(y.dtype))
    for (_, shape, exact), (_, _, pullback) in zip(entry, rounding, strict=True):
        d, expected = pullback(g), undo_broadcast(exact(g), shape)  # the sum for repeated inputs is rounded
        same = np.array_equal(to_host(d), of_array(expected), equal_nan=True)
        assert same, f"{d} is not {expected} rounded"


def entry_of(f: Op, inputs: list[Any]) -> tuple[Tensor, list[Any]]:
    """The value of f, and what its last op left on a tape."""
    with Tape() as tape:
        y = f(*[Tensor(x, requires_grad=is_float(x)) for x in inputs])
    return y, tape.entries[-1] if type(tape.entries[-1]) is list else []


def of_array(x: Array) -> np.ndarray:
    """x with each number rounded by the integers of its bits."""
    x = to_host(x)
    bits = x.astype(np.float32).view(np.uint32).astype(np.uint64)
    upper, lower = bits >> np.uint64(16), bits & np.uint64(0xFFFF)
    upper = upper + ((lower > 0x8000) | ((lower == 0x8000) & (upper % np.uint64(2) == 1)))
    y = (upper << np.uint64(16)).astype(np.uint32).view(np.float32).astype(x.dtype)
    return np.where(np.isnan(x), x, y)


def all_are_bfloat16(*arrays: Array | None) -> None:
    """No number has digits that bfloat16 lacks."""
    for array in arrays:
        assert array is not None, "an array is missing"
        bits = to_host(array).astype(np.float32).view(np.uint32)
        assert not (bits & 0xFFFF).any(), f"{array} is not rounded"


def trains_in_bfloat16(model: Any, loss: Callable[[Tensor], Tensor], x: Array, later: bool = False) -> None:
    """With weights that are rounded, values and gradients are, where backward comes after the ``with``.

    ``later`` computes the weight gradients after the others.
    """
    model.to(dtype="bfloat16", device=DEVICE)
    with bfloat16(), Tape() as tape:
        y = model(Tensor(x))
        value = loss(y)
    weights = tape.backward(value, weights_later=later)
    finish_weights(weights)
    parameters = model.parameters()
    all_are_bfloat16(y.data, value.data, *(p.data for p in parameters), *(p.grad for p in parameters))
