"""The host's forms of ``tiles.py``: tiles of a block that stay in the cache, and none that nobody sees.

Lecture section: sequence parallelism. Lesson: 17_sequences.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minigrad.faster import form_of
from minigrad.ops.fast.attention import attend, can_take, write_gradients
from minigrad.ops.fast.visibility import Visibility

from .tiles import BlockMask, attend_to_block, gradients_of_block


@form_of(attend_to_block)
def attend_in_tiles(q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: BlockMask) -> Any:
    return attend(q, k, v, Visibility(*mask)) if can_take(q, k, v) else NotImplemented


@form_of(gradients_of_block)
def gradients_in_tiles(
    g: np.ndarray,
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    lse: np.ndarray,
    delta: np.ndarray,
    mask: BlockMask,
) -> Any:
    if not can_take(q, k, v):
        return NotImplemented
    into = [np.zeros(x.shape, x.dtype) for x in (q, k, v)]
    write_gradients(
        np.ascontiguousarray(g, q.dtype), q, k, v, lse, np.ascontiguousarray(delta), Visibility(*mask), into
    )
    return tuple(into)
