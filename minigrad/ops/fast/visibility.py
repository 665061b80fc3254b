"""Which queries of an attention see which keys, asked tile by tile, so that no array (S, T) is made.

Lecture section: back-propagation. Lesson: 17_sequences.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..attention import check_shapes, checked_documents, checked_mask


class Visibility(NamedTuple):
    """A key is seen by queries that are not before it, of its document, and where the mask is True.

    Each of the three may be None. ``positions`` are those of queries (S,) and of keys (T,), both rising;
    ``documents`` those of queries (B, S) and of keys (B, T), negative for padding; ``mask`` (B, heads, S, T)
    has booleans, and may have axes of 1.
    """

    positions: tuple[Sequence[int], Sequence[int]] | None = None
    documents: tuple[np.ndarray, np.ndarray] | None = None
    mask: np.ndarray | None = None

    @staticmethod
    def of(
        q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: bool, documents: Any, mask: Any
    ) -> Visibility:
        """Settings of ``ops.attention``; raises ValueError where shapes do not fit."""
        check_shapes(q.shape, k.shape, v.shape)
        (samples, rows, heads), columns = q.shape[:3], k.shape[1]
        if documents is not None:
            documents = (checked_documents(np.asarray(documents), samples, rows, columns),) * 2
        if mask is not None:
            mask = checked_mask(np.asarray(mask), (samples, heads, rows, columns))
        return Visibility((range(rows), range(columns)) if causal else None, documents, mask)

    def end_of_keys(self, rows: slice, keys: int) -> int:
        """The place after the last of ``keys`` that one of these queries may see."""
        if self.positions is None:
            return keys
        return bisect_right(self.positions[1], self.positions[0][rows.stop - 1])

    def first_query(self, columns: slice) -> int:
        """The place of the first query that may see one of these keys."""
        if self.positions is None:
            return 0
        return bisect_left(self.positions[0], self.positions[1][columns.start])

    def tile(self, part: tuple[slice, slice], rows: slice, columns: slice) -> np.ndarray | bool | None:
        """Which queries see which keys: (samples, heads, n, m) or axes of 1; True if all do, None if none."""
        allowed = True
        if self.positions is not None:
            queries, keys = self.positions[0][rows], self.positions[1][columns]
            if keys[-1] > queries[0]:
                allowed = np.asarray(keys) <= np.asarray(queries)[:, None]
        if self.documents is not None:
            queries, keys = self.documents[0][part[0], rows], self.documents[1][part[0], columns]
            first, last = queries.min(axis=1), queries.max(axis=1)
            if ((keys.max(axis=1) < np.maximum(first, 0)) | (keys.min(axis=1) > last)).all():
                return None
            if ((keys != first[:, None]) | (first != last)[:, None] | (keys < 0)).any():
                same = (queries[:, :, None] == keys[:, None]) & (keys >= 0)[:, None]
                allowed = allowed & same[:, None]
        if self.mask is not None:
            shape = self.mask.shape
            index = [
                cut if n > 1 else slice(None) for n, cut in zip(shape, (*part, rows, columns), strict=True)
            ]
            allowed = allowed & self.mask[tuple(index)]
        return allowed if allowed is True or allowed.any() else None
