"""Layers that multiply by a matrix, or look up its rows.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``nn/__init__.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from .. import ops
from ..device import on_gpu
from ..module import Module
from ..tensor import Parameter, Tensor
from .activation import activation_of
from .init import Rng, generator, sample, uniform


class Linear(Module):
    """y = x w.T + b, weight (n_out, n_in) drawn uniformly within 1 / sqrt(n_in).

    Takes (..., n_in), returns (..., n_out). Raises ValueError for another shape, TypeError without ``rng``.

    >>> from minigrad import nn
    >>> nn.Linear(6, 3, rng=0)(np.zeros((2, 6))).shape
    (2, 3)
    """

    token_wise = True

    def __init__(
        self,
        n_in: int,
        n_out: int,
        *,
        rng: Rng | int | None = None,
        bias: bool = True,
        dtype: Any = np.float32,
    ):
        rng = generator(self, rng)
        self.weight = Parameter(uniform(rng, (n_out, n_in), n_in, dtype))
        self.bias = Parameter(uniform(rng, (n_out,), n_in, dtype)) if bias else None

    def forward(self, x: Any) -> Tensor:
        return ops.linear(x, self.weight) if self.bias is None else ops.linear(x, self.weight, self.bias)

    def in_one_pass(self, following: Sequence[Module]) -> int:
        """A ReLU or, on the host, a GELU: one pass adds the bias and computes it."""
        if not following or self.unchanged_type() is not Linear:
            return 0
        name = activation_of(following[0])
        return int(name == "relu" or name == "gelu" and not on_gpu(self.weight.data))

    def forward_with(self, x: Any, following: Sequence[Module]) -> Tensor:
        inputs = (x, self.weight) if self.bias is None else (x, self.weight, self.bias)
        return ops.linear(*inputs, activation=activation_of(following[0]))

    def describe(self) -> str:
        n_out, n_in = self.weight.shape
        return f"{n_in}, {n_out}"


class Embedding(Module):
    """A table of ``rows`` vectors of ``width``, looked up by integer."""

    token_wise = True

    def __init__(self, rows: int, width: int, *, rng: Rng | int | None = None, dtype: Any = np.float32):
        self.weight = Parameter(sample(partial(generator(self, rng).normal, 0, 1), (rows, width), dtype))

    def forward(self, x: Any) -> Tensor:
        return ops.embedding(self.weight, x)

    def describe(self) -> str:
        return "{}, {}".format(*self.weight.shape)
