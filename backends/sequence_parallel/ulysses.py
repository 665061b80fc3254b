"""Attention by an all-to-all: the ranks' tokens of all heads become all tokens of the rank's heads, and back.

Lecture section: sequence parallelism. Lesson: 17_sequences. Between the two exchanges attention is that of
one machine (Jacobs et al. 2023, DeepSpeed-Ulysses, section 3). More ranks send less, but only as many have
work as there are heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minigrad import ops
from minigrad.tensor import Tensor

from ..comm.communicator import Communicator
from ..comm.differentiable import all_to_all

TOKENS, HEADS = 1, 2


def ulysses_attention(
    qkv: Any, *, comm: Communicator, columns: Sequence[np.ndarray], causal: bool = True, documents: Any = None
) -> Tensor:
    """``ops.self_attention`` of this rank's tokens (B, n, heads, 3 D) among those of all ranks.

    ``columns`` are those of each rank in the whole rows, consecutive from rank to rank; ``documents`` (B, S)
    number those of the whole rows. Heads are shared as evenly as can be; a rank without any takes part in the
    exchanges. Messages are p - 1 for queries, keys and values, p - 1 for the result, and as many in backward.
    A rank with n of S tokens, and a_r of a heads, sends B D (3 n (a - a_r) + a_r (S - n)) numbers in forward
    and B D (n (a - a_r) + 3 a_r (S - n)) in backward; with equal parts 8 (p - 1) / p B n a D in all. Raises
    ValueError for columns in another order.
    """
    order = np.concatenate(columns)
    if (np.diff(order) < 0).any():
        raise ValueError(
            "an all-to-all over heads joins the tokens by rank, so they must be consecutive; take "
            'columns_of(length, ranks, "contiguous"), or a ring'
        )
    qkv = all_to_all(qkv, comm=comm, axis=HEADS, to_axis=TOKENS)
    o = ops.self_attention(qkv, causal=causal, documents=documents)
    lengths = [len(own) for own in columns]
    return all_to_all(o, comm=comm, axis=TOKENS, to_axis=HEADS, sizes=lengths)
