"""Documents in the rows of a batch, and which tokens of the rows are here, for layers that ask for them.

Lecture section: back-propagation. Lesson: 17_sequences, by ``nn/attention.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from . import ops
from .device import Array, array_module, to_device
from .forward_pass import current_pass
from .random_mask import Mask
from .tensor import Tensor


@dataclass(frozen=True)
class Tokens:
    """The place of each token in its document, and the number of its document in its row, (B, S) each.

    Documents are numbered from 0, and padding has the number -1. Without ``document`` a row is one document;
    without ``position`` places are those in the row. Attention, positions and dropout ask it in a forward
    pass; strategies that share rows among ranks derive from it. Raises ValueError for other shapes.
    """

    position: Array | None = None
    document: Array | None = None

    def __post_init__(self) -> None:
        for name, array in (("position", self.position), ("document", self.document)):
            if array is not None and (array.ndim != 2 or array.dtype.kind not in "iu"):
                raise ValueError(
                    f"tokens have a {name} each, integers (B, S), got {array.dtype}{array.shape}"
                )

    def __len__(self) -> int:
        """The number of rows; 0 where it holds nothing by row."""
        return max((len(array) for array in self.arrays() if array is not None), default=0)

    def __getitem__(self, rows: slice | Array | Sequence[int]) -> Self:
        return self.with_arrays(*self.changed(lambda array: array[rows]))

    def to(self, device: str) -> Self:
        """These on ``device`` ("numpy" or "cupy")."""
        return self.with_arrays(*self.changed(lambda array: to_device(array, device)))

    def arrays(self) -> tuple[Array | None, Array | None]:
        return self.position, self.document

    def changed(self, change: Callable[[Array], Array]) -> list[Array | None]:
        """The arrays, where they are, after a ``change``."""
        return [None if array is None else change(array) for array in self.arrays()]

    def with_arrays(self, position: Array | None, document: Array | None) -> Self:
        """The tokens of other rows, of which the columns here are the same."""
        return replace(self, position=position, document=document)

    def all_gather(self, x: Array) -> Array:
        """What x (B, n, ...) has for the n columns that are here, for all columns (B, S, ...) of the rows."""
        return x

    def local_part(self, x: Array) -> Array:
        """What x (B, S, ...) has for the columns that are here."""
        return x

    def in_one_row(self) -> Tokens:
        """All tokens as one row; ValueError where other ranks have some of a row's."""
        if type(self) is not Tokens:
            raise ValueError(
                "a rank with some tokens of each row cannot have places for all; give it capacity per sample"
            )
        return Tokens(*self.changed(lambda array: array.reshape(1, -1)))

    def places(self, shape: tuple[int, ...]) -> Array:
        """The places of the tokens of a layer, which broadcast to its ``shape`` (B, S); padding has 0."""
        if self.position is None:
            return np.arange(shape[1])
        xp = array_module(self.position)
        return self.position if self.document is None else xp.where(self.document < 0, 0, self.position)

    def mask(self, mask: Mask, rows: int) -> Mask:
        """The random mask of the tokens (B, S, ...) of so many rows, from that of the whole rows."""
        return mask

    def self_attention(self, qkv: Any, **masks: Any) -> Tensor:
        """``ops.self_attention`` of the tokens, each of which sees those of its own document alone."""
        if self.document is not None:
            masks.setdefault("documents", self.document)
        return ops.self_attention(qkv, **masks)


def current_tokens() -> Tokens | None:
    """What the batch of the current pass says of its tokens; None where nothing is known."""
    return getattr(current_pass.get(), "tokens", None)
