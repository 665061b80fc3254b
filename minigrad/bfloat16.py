"""bfloat16: the first 16 bits of float32, with its range and three decimal digits (Kalamkar et al. 2019).

NumPy has no such dtype. Here it is float32 memory whose values are rounded: what a computation loses can be
seen, and no byte is saved, as ``Tape.nbytes`` says.
Lecture section: back-propagation. Lesson: 02_backpropagation, by ``op.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from threading import Lock
from typing import Any

import numpy as np

from .device import Array, array_module
from .dtypes import is_floating
from .pullback import OpResult, Pullback, shape_of
from .tape import input_gradient

in_bfloat16: ContextVar[bool] = ContextVar("minigrad.in_bfloat16", default=False)


class OpenBlocks:
    """How many ``with`` are open in all threads: where there is none, an op asks no further."""

    __slots__ = ("count", "lock")

    def __init__(self) -> None:
        self.count, self.lock = 0, Lock()

    def add(self, n: int) -> None:
        with self.lock:
            self.count += n


OPEN = OpenBlocks()


@contextmanager
def bfloat16(on: bool = True) -> Iterator[None]:
    """Inside it each op rounds its value, and the gradients of its inputs, also where backward comes later.

    Within an op arithmetic is float32. Arrays that no op made are not rounded, nor is the sum of gradients of
    a tensor that several ops use. Each thread, as of a rank, has its own ``with``; ``on=False`` ends it for a
    while.
    """
    token = in_bfloat16.set(on)
    OPEN.add(1)
    try:
        yield
    finally:
        OPEN.add(-1)
        in_bfloat16.reset(token)


def rounded(x: Array) -> Array:
    """x with each float rounded to the nearest bfloat16, ties to even, in the dtype of x.

    NaN stays NaN, and what is too large becomes infinite. float64 is rounded to float32 first, so that a
    number near the middle between two may go to the farther one. Integers stay as they are.
    """
    if not is_floating(x):
        return x
    xp = array_module(x)
    with np.errstate(over="ignore"):
        single = xp.asarray(x).astype(np.float32, copy=False).reshape(x.shape or 1)
    bits = single.view(np.uint32)
    last = (bits >> np.uint32(16)) & np.uint32(1)  # of the 16 bits that stay
    nearest = (bits + (np.uint32(0x7FFF) + last)) & np.uint32(0xFFFF0000)
    quiet = (bits | np.uint32(0x00400000)) & np.uint32(0xFFFF0000)  # a NaN of the other 16 bits would be inf
    y = xp.where(single == single, nearest, quiet).view(np.float32)
    y = y.reshape(x.shape).astype(x.dtype, copy=False)
    return y[()] if isinstance(x, np.generic) else y  # of a number, which ops turn into an array


def rounded_result(result: OpResult, arrays: Sequence[Any]) -> OpResult:
    """What an op returned for ``arrays``: its value rounded, and pullbacks that round what they return."""
    value, pullbacks = result
    return rounded(value), tuple(
        None if pullback is None else rounded_pullback(pullback, shape_of(a))
        for a, pullback in zip(arrays, pullbacks, strict=True)
    )


def rounded_pullback(pullback: Pullback, shape: tuple[int, ...]) -> Pullback:
    """The ``pullback`` to an input of this shape, whose gradient is summed up, and then rounded."""
    return wraps(pullback)(lambda g: rounded(input_gradient(pullback(g), g, shape, pullback)))
