"""Which tokens of a row each rank has: consecutive ones, or a part from the front and one from the back.

Lecture section: sequence parallelism. Lesson: 17_sequences. Under a causal mask a late token sees more keys
than an early one. With consecutive tokens the last rank of a ring therefore computes most, and all wait for
it. In zig-zag order each rank has one early and one late part, and all see as many keys (Llama 3,
arXiv:2407.21783, section 3.3.2).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minigrad.data import shares
from minigrad.lookup import check_choice

ORDERS = ("zigzag", "contiguous")


def columns_of(length: int, ranks: int, order: str = "zigzag") -> list[np.ndarray]:
    """The columns, rising, of rows of ``length`` tokens that each of the ``ranks`` has; perhaps none.

    "contiguous" columns are the rank-th of as many shares. For "zigzag" rows are cut into two shares for each
    rank, and rank r has shares r and 2 ranks - 1 - r. Raises ValueError for another ``order``.
    """
    check_choice("order", order, ORDERS)
    columns = np.arange(length)
    if order == "contiguous":
        return [columns[share] for share in shares(length, ranks)]
    parts = shares(length, 2 * ranks)
    return [np.concatenate([columns[parts[r]], columns[parts[-1 - r]]]) for r in range(ranks)]


def pairs_of(columns: Sequence[np.ndarray], causal: bool = True) -> np.ndarray:
    """The numbers (ranks, ranks) of keys of rank j that queries of rank i see, summed over these queries."""
    if not causal:
        lengths = [len(own) for own in columns]
        return np.outer(lengths, lengths)
    counts = [[np.searchsorted(keys, queries, side="right").sum() for keys in columns] for queries in columns]
    return np.array(counts, int)
