"""Who waits on the ring: how a row of tokens may be shared among ranks, and how long the steps then last.

Lesson: 17_sequences. Time is counted in pairs of a query and a key that it may see: a tile of so many pairs
takes so long, and the keys and values of a token take ``message`` pairs to the next rank. A step ends when
the slowest tile and the slowest message have ended; behind the last step there is no message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from backends.sequence_parallel.token_order import columns_of, pairs_of

TOKENS = 64
RANKS = (2, 4, 8)
ORDERS = {"plain": "contiguous", "zig-zag": "zigzag", "striped": None}
"""The orders of the page, and what ``columns_of`` calls them; striped means every p-th token."""


def ring_data() -> dict[str, Any]:
    """The owner of each token by ranks and order, as a digit; pairs of ranks, steps and the time."""
    return {
        "tokens": TOKENS,
        "ranks": list(RANKS),
        "blocks": {p: 2 * p for p in RANKS},
        "orders": {p: {name: counted(columns(name, p)) for name in ORDERS} for p in RANKS},
    }


def ring_texts() -> dict[str, str]:
    """What the sentences of the page's frame say of its data."""
    return {"tokens": str(TOKENS)}


def columns(order: str, ranks: int) -> list[np.ndarray]:
    """The places of each rank's tokens."""
    name = ORDERS[order]
    if name is None:
        return [np.arange(rank, TOKENS, ranks) for rank in range(ranks)]
    return columns_of(TOKENS, ranks, name)


def counted(columns: list[np.ndarray]) -> dict[str, Any]:
    """An order's owners, its pairs of queries of one rank and keys of another, and its time without messages.

    Messages that take no time make no step longer.
    """
    pairs = pairs_of(columns, True)
    owners = np.zeros(TOKENS, int)
    for rank, places in enumerate(columns):
        owners[places] = rank
    sizes = [len(places) for places in columns]
    return {
        "owners": "".join(map(str, owners)),
        "pairs": pairs.tolist(),
        "time": sum(lengths(pairs, sizes, 0.0)),
    }


def lengths(pairs: np.ndarray, sizes: Sequence[int], message: float) -> list[float]:
    """How long each step lasts; in step t rank r has the keys of rank r - t, and passes them on."""
    p = len(sizes)
    steps = []
    for t in range(p):
        sources = [(rank - t) % p for rank in range(p)]
        tiles = [int(pairs[rank, source]) for rank, source in enumerate(sources)]
        messages = [message * sizes[source] for source in sources] if t < p - 1 else [0.0]
        steps.append(max(*tiles, *messages))
    return steps
