"""Data sets, batches of samples, and the seeded order in which an epoch visits them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from .device import Array, to_device, to_host
from .forward_pass import ForwardPass
from .keyword_settings import settings_by_name
from .random_mask import Places

if TYPE_CHECKING:
    from .tokens import Tokens


@dataclass(frozen=True, repr=False)
class Batch:
    """Samples ``x`` (N, ...) and their targets ``y`` (N, ...).

    ``x, y = batch`` takes it apart, and ``batch[rows]`` is a batch of some of its samples. ``places`` are
    those of the samples in the batch of which this is a part, 0 to N - 1 if it is whole; ``is_part`` says
    whether that batch has more samples. ``tokens`` are the documents in the rows of a text, if there are
    several in a row.

    >>> Batch(np.zeros((64, 1, 28, 28), np.float32), np.zeros(64, np.int64))
    Batch(x=float32(64, 1, 28, 28), y=int64(64,))
    """

    x: Array
    y: Array
    places: Places = field(default=range(0), compare=False)
    is_part: bool = field(default=False, compare=False)
    tokens: Tokens | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if len(self.x) != len(self.y):
            raise ValueError(
                f"a batch needs as many targets as samples, got {len(self.x)} x and {len(self.y)} y"
            )
        if not len(self.places):
            object.__setattr__(self, "places", range(len(self.x)))
        if len(self.places) != len(self.x):
            raise ValueError(
                f"a batch needs as many places as samples, got {len(self.places)} for {len(self.x)} samples"
            )
        if self.tokens is not None and len(self.tokens) not in (0, len(self.x)):
            raise ValueError(
                f"a batch needs tokens of its rows, got those of {len(self.tokens)} rows for {len(self.x)}"
            )

    def __repr__(self) -> str:
        return f"Batch(x={self.x.dtype}{self.x.shape}, y={self.y.dtype}{self.y.shape})"

    def __len__(self) -> int:
        return len(self.x)

    def __iter__(self) -> Iterator[Array]:
        """x and y, so that ``for x, y in minibatches(...)`` takes each batch apart."""
        return iter((self.x, self.y))

    def __getitem__(self, rows: slice | np.ndarray | Sequence[int]) -> Batch:
        """The samples of a slice, or of an array of numbers or booleans; TypeError for a single number."""
        if isinstance(rows, tuple) or not isinstance(rows, slice) and not np.ndim(rows):
            raise TypeError(
                f"a batch is indexed by a slice or by an array of rows, got {rows}; write batch[[3]] for the "
                "batch of sample 3, and batch.x[3] for the sample"
            )
        some = isinstance(rows, slice)
        places = self.places[rows] if some else np.asarray(self.places)[to_host(rows)]
        tokens = None if self.tokens is None else self.tokens[rows]
        return Batch(self.x[rows], self.y[rows], places, self.is_part or len(places) < len(self), tokens)

    def evaluation_pass(self) -> ForwardPass:
        """Inside it layers that are not trained know the tokens of these samples."""
        return ForwardPass(None, self.places, tokens=self.tokens)

    def whole(self) -> Batch:
        """A whole batch of these samples, with the places 0, 1, ..."""
        return Batch(self.x, self.y, tokens=self.tokens)

    def to(self, device: str | None = None, *, dtype: Any = None) -> Batch:
        """The batch on ``device`` ("numpy" or "cupy"), with floating x in ``dtype``; None changes nothing."""
        x, y, tokens = self.x, self.y, self.tokens
        if dtype is not None and x.dtype.kind == "f":
            x = x.astype(dtype, copy=False)
        if device is not None:
            x, y = to_device(x, device), to_device(y, device)
            tokens = None if tokens is None else tokens.to(device)
        return Batch(x, y, self.places, self.is_part, tokens)


@dataclass(frozen=True)
class Dataset:
    """The samples to learn from, those to test on, and the test results of simple rules, to compare with."""

    name: str
    train: Batch
    test: Batch
    references: dict[str, float] = field(default_factory=dict)


def shares(n: int, parts: int) -> list[slice]:
    """``n`` samples in ``parts`` consecutive slices whose sizes differ by at most one; some may be empty."""
    if parts < 1:
        raise ValueError(f"samples can be shared among at least 1 part, got {parts}")
    cuts = [n * i // parts for i in range(parts + 1)]
    return [slice(a, b) for a, b in zip(cuts, cuts[1:], strict=False)]


@settings_by_name
def minibatches(data: Batch, size: int, *, seed: int, epoch: int) -> Iterator[Batch]:
    """One epoch: every sample once, in an order drawn from (seed, epoch) alone, so the same on every rank.

    The last batch is smaller where ``size`` does not divide the number of samples.
    """
    if size < 1:
        raise ValueError(f"the batch size must be at least 1, got {size}")
    order = np.random.default_rng([seed, epoch]).permutation(len(data))
    return (data[order[start : start + size]] for start in range(0, len(data), size))
