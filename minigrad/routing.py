"""Which experts the tokens of a mixture choose, and who of them has a place there.

Lecture section: data and model parallelism together. Lesson: 18_experts. A row of tokens is a group of
its own: it brings places for itself, so routes do not depend on how rows are shared among ranks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .device import Array, to_host
from .tokens import Tokens


@dataclass(frozen=True)
class Routes:
    """The choices of tokens (B, S) among experts, and those of them that have a place, on the host.

    ``experts`` (B, S, k) are each token's choices, the best first. ``slots`` are the positions of those with
    a place in the B S k choices, in the order of expert, row and token, and ``counts`` is their number for
    each expert. ``counted`` (B, S) is False for padding, which chooses nothing. ``shares`` (B, E) are the
    parts of a row's tokens whose first choice is each expert, whether or not there is a place, and
    ``lengths`` (B,) the numbers of tokens in rows.
    """

    experts: np.ndarray
    slots: np.ndarray
    counts: np.ndarray
    counted: np.ndarray
    shares: np.ndarray
    lengths: np.ndarray

    @property
    def tokens(self) -> np.ndarray:
        """Which of the B S tokens each slot belongs to."""
        return self.slots // self.experts.shape[2]

    @property
    def choices(self) -> int:
        """The number of choices, with or without a place."""
        return int(self.counted.sum()) * self.experts.shape[2]

    @property
    def dropped(self) -> int:
        """The number of choices without a place."""
        return self.choices - len(self.slots)


def route(gates: Array, *, choices: int, capacity: float, tokens: Tokens | None = None) -> Routes:
    """The routes of tokens with these ``gates`` (B, S, E), each to the ``choices`` experts of largest gates.

    Of equal gates the lower expert comes first. An expert has ceil(capacity * choices * S / E) places for a
    row of S tokens. All first choices of a row come before any second one, then earlier tokens before later
    ones (Lepikhin et al. 2020, GShard, algorithm 1). ``tokens`` say what is padding, which counts nowhere,
    and what other ranks have of the rows; documents in a row share its places.
    """
    tokens, gates = Tokens() if tokens is None else tokens, to_host(gates)
    n_experts = gates.shape[2]
    experts = np.argsort(-gates, axis=2, kind="stable")[:, :, :choices]
    of_rows = tokens.all_gather(experts)
    counted = np.ones(of_rows.shape[:2], bool)
    if tokens.document is not None:
        counted = to_host(tokens.document) >= 0
    lengths = counted.sum(1)
    of_rows = np.where(counted[:, :, None], of_rows, n_experts)  # padding waits for an expert that is none
    capacity = min(capacity, n_experts)  # with which there are places for all
    places = np.ceil(np.round(capacity * choices * lengths / n_experts, 9))  # 0.1 * 3 is 0.3
    has_place = counted[:, :, None] & (queue_positions(of_rows, n_experts + 1) < places[:, None, None])
    first = [np.bincount(row, minlength=n_experts)[:n_experts] for row in of_rows[:, :, 0]]
    shares = np.array(first).reshape(len(gates), n_experts) / np.maximum(lengths, 1)[:, None]
    slots = np.flatnonzero(tokens.local_part(has_place))
    chosen = experts.reshape(-1)[slots]
    slots = slots[np.argsort(chosen, kind="stable")]
    counts = np.bincount(chosen, minlength=n_experts)
    return Routes(experts, slots, counts, tokens.local_part(counted), shares, lengths)


def queue_positions(experts: np.ndarray, n_experts: int) -> np.ndarray:
    """How many choices of the same row and expert come before each of ``experts`` (B, S, k)."""
    rows, length, k = experts.shape
    queues = (experts + n_experts * np.arange(rows)[:, None, None]).swapaxes(1, 2).reshape(-1)
    order = np.argsort(queues, kind="stable")
    sizes = np.bincount(queues, minlength=rows * n_experts)
    starts = np.cumsum(sizes) - sizes
    positions = np.empty_like(order)
    positions[order] = np.arange(len(order)) - starts[queues[order]]
    return positions.reshape(rows, k, length).swapaxes(1, 2)
