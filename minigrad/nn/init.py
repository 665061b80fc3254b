"""The numbers with which weights begin, and PyTorch's functions that fill a parameter in place with others.

Each of these returns the parameter. Random ones take ``rng``, a generator or a seed, the same on every rank;
TypeError for anything else. Sources: Glorot and Bengio 2010 (xavier), He et al. 2015 (kaiming).
Lecture section: back-propagation. Lesson: 02_backpropagation, by ``nn/__init__.py``.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ..device import array_module
from ..lookup import check_choice, lookup
from ..ops.dropout import generator_needed
from ..tensor import Tensor

BLOCK = 1 << 16  # numbers drawn at a time
Rng = np.random.Generator
GAINS = {"linear": 1.0, "sigmoid": 1.0, "tanh": 5 / 3, "relu": math.sqrt(2), "leaky_relu": math.sqrt(2)}
"""The factor that keeps the size of activations; with a slope a of a leaky ReLU, by sqrt(1 + a^2) smaller."""


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


def constant_(tensor: Tensor, value: float) -> Tensor:
    """All elements are ``value``."""
    tensor.data[...] = value
    return tensor


zeros_, ones_ = partial(constant_, value=0.0), partial(constant_, value=1.0)


def uniform_(tensor: Tensor, low: float = 0.0, high: float = 1.0, *, rng: Rng | int) -> Tensor:
    """Uniform in low <= x < high."""
    return fill(tensor, partial(generator(tensor, rng).uniform, low, high))


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, *, rng: Rng | int) -> Tensor:
    """Normal with this mean and standard deviation."""
    return fill(tensor, partial(generator(tensor, rng).normal, mean, std))


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, *, rng: Rng | int) -> Tensor:
    """Uniform, of the standard deviation of ``xavier_normal_``."""
    bound = math.sqrt(3) * xavier(tensor, gain)
    return uniform_(tensor, -bound, bound, rng=rng)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, *, rng: Rng | int) -> Tensor:
    """Normal with the standard deviation gain sqrt(2 / (fan_in + fan_out))."""
    return normal_(tensor, std=xavier(tensor, gain), rng=rng)


def kaiming_uniform_(
    tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", *, rng: Rng | int
) -> Tensor:
    """Uniform, of the standard deviation of ``kaiming_normal_``; a = sqrt(5) is that of our linear layers."""
    bound = math.sqrt(3) * kaiming(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, rng=rng)


def kaiming_normal_(
    tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", *, rng: Rng | int
) -> Tensor:
    """Normal with the standard deviation gain / sqrt(fan), of the ``mode`` "fan_in" or "fan_out"."""
    return normal_(tensor, std=kaiming(tensor, a, mode, nonlinearity), rng=rng)


def xavier(tensor: Tensor, gain: float) -> float:
    return gain * math.sqrt(2 / max(sum(fans(tensor)), 1))


def kaiming(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    check_choice("mode", mode, ("fan_in", "fan_out"))
    slope = a if nonlinearity == "leaky_relu" else 0.0
    fan = fans(tensor)[mode == "fan_out"]
    return lookup("nonlinearity", nonlinearity, GAINS) / math.sqrt(max(fan, 1) * (1 + slope * slope))


def fans(tensor: Tensor) -> tuple[int, int]:
    """How many inputs an output has, and outputs an input; ValueError for a vector."""
    if tensor.ndim < 2:
        raise ValueError(f"a weight (out, in, ...) has inputs and outputs, got {tensor.shape}; take normal_")
    n_out, n_in, *window = tensor.shape
    return n_in * math.prod(window), n_out * math.prod(window)


def fill(tensor: Tensor, draw: Callable[[int], np.ndarray]) -> Tensor:
    """Fill a tensor, in place and in its dtype, with what ``draw(n)`` gives."""
    tensor.data[...] = array_module(tensor.data).asarray(sample(draw, tensor.shape, tensor.dtype))
    return tensor
