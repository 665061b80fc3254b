"""What a mixture of experts drops, holds, computes and sends, by closed formulas.

Lecture section: data and model parallelism together. Lesson: 18_experts. Lepikhin et al. 2020 (GShard),
section 3; Fedus et al. 2021 (Switch), section 2. A token of ``width`` numbers is computed by ``choices`` of
``experts`` nets of two layers with ``hidden`` neurons between them, which a gate chooses.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

COUNT_BYTES = 8  # an integer


def capacity_of(tokens: int, experts: int, choices: int, factor: float) -> int:
    """The places of an expert for a sample of so many tokens: ceil(factor choices tokens / experts)."""
    return math.ceil(factor * choices * tokens / experts)


def dropped_by_chance(tokens: int, experts: int, capacity: int) -> float:
    """The mean share of ``tokens`` without a place, if each chooses one expert, all alike probable.

    An expert is chosen by a binomial number of tokens x, of which max(0, x - capacity) are dropped.
    """
    p = 1 / experts
    lost = (
        (x - capacity) * math.comb(tokens, x) * p**x * (1 - p) ** (tokens - x)
        for x in range(capacity + 1, tokens + 1)
    )
    return experts * sum(lost) / tokens


class MixtureSize(NamedTuple):
    """The size of a mixture of experts."""

    width: int
    hidden: int
    experts: int
    choices: int = 1

    @property
    def gate(self) -> int:
        """The weights of the gate."""
        return self.experts * self.width

    @property
    def parameters(self) -> int:
        """The weights and biases of all experts, and the gate."""
        return self.gate + self.experts * (2 * self.hidden * self.width + self.hidden + self.width)

    @property
    def flops(self) -> int:
        """Additions and multiplications of the products of a token, forward, if no choice is dropped."""
        return 2 * self.gate + self.choices * 4 * self.hidden * self.width


def exchange_bytes(counts: np.ndarray, experts: list[int], rank: int, width: int, itemsize: int = 8) -> int:
    """What ``rank`` sends in a layer, forward and back, where ``counts`` (ranks, experts) are rows kept.

    ``experts`` is the number of experts of each rank, consecutive ones. A row goes to its expert and comes
    back, and so do the gradients: the rank sends its own rows twice, those that it received twice, and one
    count for each expert of the others.
    """
    ends = np.cumsum(experts)
    own = slice(ends[rank] - experts[rank], ends[rank])
    there = counts[rank].sum() - counts[rank, own].sum()
    here = counts[:, own].sum() - counts[rank, own].sum()
    return int(2 * width * itemsize * (there + here) + COUNT_BYTES * (ends[-1] - experts[rank]))
