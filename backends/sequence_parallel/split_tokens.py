"""What a pass knows of its tokens where other ranks have the other tokens of its rows.

Lecture section: sequence parallelism. Lesson: 17_sequences. Layers ask the tokens of the pass for attention,
places and masks of dropout, so no layer is replaced: attention is that of all ranks, places are those of the
columns, and a mask is drawn for the whole rows, of which it takes these columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from minigrad.device import Array, array_module
from minigrad.random_mask import Mask
from minigrad.tensor import Tensor
from minigrad.tokens import Tokens

from ..comm.collectives import allgather
from ..comm.communicator import Communicator
from .ring import ring_self_attention
from .ulysses import ulysses_attention

FORMS: Mapping[str, Callable[..., Tensor]] = MappingProxyType(
    {"ring": ring_self_attention, "ulysses": ulysses_attention}
)
"""Attention of tokens that ranks share, by the name of ``--sequence-form``."""


@dataclass(frozen=True, eq=False, kw_only=True)
class SplitTokens(Tokens):
    """The tokens in some columns of rows; those of each rank of ``comm`` are in ``columns``.

    ``position`` and ``document`` are those of the whole rows (B, S), which every rank has, so that they take
    no message. Attention is a ``form`` of ``FORMS``.
    """

    comm: Communicator
    columns: list[np.ndarray]
    form: str = "ring"

    @property
    def own(self) -> np.ndarray:
        """This rank's columns."""
        return self.columns[self.comm.rank]

    @property
    def length(self) -> int:
        """The number of columns of the whole rows."""
        return sum(map(len, self.columns))

    def places(self, shape: tuple[int, ...]) -> Array:
        self.check_shape("positions", shape)
        return self.own if self.position is None else self.local_part(super().places(shape))

    def mask(self, mask: Mask, rows: int) -> Mask:
        return ColumnsMask(mask, self, rows)

    def self_attention(self, qkv: Any, *, mask: Any = None, documents: Any = None, **masks: Any) -> Tensor:
        """Attention to the tokens of all ranks; ``documents`` (B, n) are those of this rank's tokens.

        With documents that the batch does not know, it sends an all-gather of them. Raises ValueError for a
        ``mask``.
        """
        if mask is not None:
            raise ValueError(
                "a mask says which of the tokens here see one another, and --sequence has others elsewhere; "
                "pass documents= of the tokens, or leave the sequence axis out"
            )
        self.check_shape("attention", np.shape(qkv))
        if documents is not None:
            documents = self.all_gather(Tensor(documents).data)
        elif self.document is not None:
            documents = self.document
        return FORMS[self.form](qkv, comm=self.comm, columns=self.columns, documents=documents, **masks)

    def all_gather(self, x: Array) -> Array:
        parts = allgather(self.comm, x)
        xp = array_module(x)
        whole = xp.empty((len(x), self.length, *x.shape[2:]), x.dtype)
        for own, part in zip(self.columns, parts, strict=True):
            whole[:, own] = part
        return whole

    def local_part(self, x: Array) -> Array:
        return x[:, self.own]

    def check_shape(self, what: str, shape: tuple[int, ...]) -> None:
        """Raise ValueError unless ``shape`` is that of this rank's tokens (B, n, ...)."""
        if len(shape) < 2 or shape[1] != len(self.own):
            raise ValueError(
                f"{what} of tokens (B, {len(self.own)}, ...), which are this rank's of {self.length}, cannot "
                f"take the shape {shape}; keep the tokens on axis 1"
            )


class ColumnsMask(NamedTuple):
    """The columns of a random mask that are this rank's tokens."""

    whole: Mask
    tokens: SplitTokens
    rows: int

    def keep(self, shape: tuple[int, ...], p: float) -> Array:
        """``RandomMask.keep`` for tokens (B, n, ...); raises ValueError for another shape."""
        self.tokens.check_shape("dropout", shape)
        if shape[0] != self.rows:
            raise ValueError(
                f"dropout of tokens (B, n, ...) in {self.rows} rows cannot take the shape {shape}; keep rows "
                "on axis 0 and tokens on axis 1"
            )
        return self.tokens.local_part(self.whole.keep((shape[0], self.tokens.length, *shape[2:]), p))
