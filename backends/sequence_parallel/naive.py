"""Ring attention as on the slide: keys and values go round as two messages, and nothing goes on meanwhile.

Lecture section: sequence parallelism. Lesson: 17_sequences. ``ring.py`` sends one message, and computes
while it is on its way.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minigrad.device import Array
from minigrad.op import OpResult, op
from minigrad.tape import once_for_all

from ..comm.collectives.send_recv import Tag, send_recv
from ..comm.communicator import Communicator
from .tiles import BlockMask, attend_to_block, gradients_of_block, merge, row_products


@op
def naive_ring_attention(
    q: Array, k: Array, v: Array, *, comm: Communicator, columns: Sequence[np.ndarray]
) -> OpResult:
    """Causal attention of this rank's queries (B, n, heads, D) to the keys and values of all ranks.

    ``columns`` are those of each rank in the whole rows. It sends 6 (p - 1) messages: keys and values in
    forward, and in backward these and their gradients.
    """
    p, rank = comm.size, comm.rank

    def to_next(*arrays: Array) -> list[Array]:
        return [send_recv(comm, x, (rank + 1) % p, (rank - 1) % p, Tag.KEYS) for x in arrays]

    def mask(t: int) -> BlockMask:
        return BlockMask((columns[rank], columns[(rank - t) % p]), None)

    o, lse = attend_to_block(q, k, v, mask(0))
    keys, values = k, v
    for t in range(1, p):
        keys, values = to_next(keys, values)  # of rank - t
        o, lse = merge(o, lse, *attend_to_block(q, keys, values, mask(t)))

    def gradients(g: Array) -> list[Array]:
        delta, keys, values = row_products(g, o), k, v
        dq, dk, dv = gradients_of_block(g, q, k, v, lse, delta, mask(0))
        to_keys, to_values = np.zeros_like(k), np.zeros_like(v)  # of a block, from the ranks it has passed
        for t in range(1, p):
            keys, values = to_next(keys, values)
            if t == 1:
                to_keys, to_values = np.zeros_like(keys), np.zeros_like(values)
            else:
                to_keys, to_values = to_next(to_keys, to_values)
            more = gradients_of_block(g, q, keys, values, lse, delta, mask(t))
            dq, to_keys, to_values = dq + more[0], to_keys + more[1], to_values + more[2]
        if p > 1:
            to_keys, to_values = to_next(to_keys, to_values)  # which are home now
        return [dq, dk + to_keys, dv + to_values]

    _, pullback = once_for_all(gradients)
    return o, (pullback(0), pullback(1), pullback(2))
