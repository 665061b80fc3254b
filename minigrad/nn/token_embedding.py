"""Symbols as vectors, and vectors as scores of symbols, by one table.

Lecture section: back-propagation. Lesson: 17_sequences.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from .. import ops
from ..device import on_gpu
from ..module import Module
from ..tensor import Parameter, Tensor
from ..tokens import current_tokens
from .init import Rng, generator, sample

DEVIATION = 0.02  # of the numbers with which tables begin, as in GPT-2: the first scores are nearly equal


class TokenEmbedding(Module):
    """The vector of each symbol plus that of its place: integers (B, S) to (B, S, width).

    There are ``symbols`` symbols and ``length`` places, all learned. Raises ValueError for longer
    rows, and for x without these axes.

    >>> from minigrad import nn
    >>> nn.TokenEmbedding(50, 8, 12, rng=0)([[1, 2, 3]]).shape
    (1, 3, 8)
    """

    token_wise = True

    def __init__(
        self, symbols: int, width: int, length: int, *, rng: Rng | int | None = None, dtype: Any = np.float32
    ):
        draw = partial(generator(self, rng).normal, 0, DEVIATION)
        self.weight = Parameter(sample(draw, (symbols, width), dtype))
        self.position = Parameter(sample(draw, (length, width), dtype))

    def forward(self, x: Any) -> Tensor:
        return ops.embedding(self.weight, x) + places_of(self.position, np.shape(x))

    def describe(self) -> str:
        return "{}, {}, {}".format(*self.weight.shape, len(self.position))


class Unembedding(Module):
    """The score of each symbol: x (..., width) times the table of a TokenEmbedding, which it shares."""

    token_wise = True

    def __init__(self, embedding: TokenEmbedding):
        self.weight = embedding.weight

    def forward(self, x: Any) -> Tensor:
        return ops.linear(x, self.weight)

    def describe(self) -> str:
        return "{1}, {0}".format(*self.weight.shape)


def places_of(position: Tensor, symbols: tuple[int, ...]) -> Tensor:
    """The vectors in the table ``position`` for the places of symbols (B, S), of which the batch may know.

    They broadcast to (B, S, width). Raises ValueError for more places than there are, and for other axes.
    """
    tokens = current_tokens()
    if tokens is None:
        check_places(symbols, len(position))
        return position[: symbols[1]]
    check_places(symbols, max(symbols[-1], len(position)))
    places = tokens.places(symbols)
    if not on_gpu(places):  # there the host would have to wait for it, and the vector is NaN
        check_places((1, int(places.max(initial=-1)) + 1), len(position))
    return ops.embedding(position, places)


def check_places(symbols: tuple[int, ...], length: int) -> None:
    """Raise ValueError unless ``symbols`` is the shape (B, S) of rows that fit into so many places."""
    if len(symbols) != 2:
        raise ValueError(f"the model takes symbols (B, S), got the shape {symbols}; x[None] is one row")
    if (n := symbols[1]) > length:
        raise ValueError(
            f"the model has {length} positions, the text {n} symbols; cut it, or train with --length {n}"
        )
