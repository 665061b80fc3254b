"""The numbers with which weights begin.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``nn/linear.py``.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ..ops.dropout import generator_needed

BLOCK = 1 << 16  # numbers drawn at a time
Rng = np.random.Generator


def generator(user: object, rng: Rng | int | None) -> Rng:
    """``rng``, or a new generator of the seed that it is; for anything else TypeError, with user's class."""
    if isinstance(rng, numbers.Integral):
        return np.random.default_rng(int(rng))
    if not isinstance(rng, Rng):
        raise generator_needed(type(user).__name__, rng)
    return rng


def uniform(rng: Rng, shape: tuple[int, ...], fan_in: int, dtype: Any) -> np.ndarray:
    """Uniform within 1 / sqrt(fan_in), PyTorch's default for linear and convolution layers."""
    bound = 1 / math.sqrt(max(fan_in, 1))
    return sample(partial(rng.uniform, -bound, bound), shape, dtype)


def sample(draw: Callable[[int], np.ndarray], shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An array of one stream's numbers, a block at a time: whole, in float64, they take twice more memory."""
    a = np.empty(shape, dtype)
    for block in np.array_split(a.reshape(-1), range(BLOCK, a.size, BLOCK)):
        block[:] = draw(block.size)
    return a
