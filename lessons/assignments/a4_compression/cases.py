"""The cases on which assignment a4 is tried."""

from __future__ import annotations

from dataclasses import dataclass

import hypothesis.strategies as st
import numpy as np

from backends.words import counted


@dataclass(frozen=True)
class Vector:
    """A vector, of which k entries are meant."""

    n: int
    k: int
    dtype: str
    seed: int
    ranks = 1

    def __str__(self) -> str:
        return f"{entries(self.n)} of {self.dtype}, k = {self.k}"

    @property
    def rng(self) -> np.random.Generator:
        return np.random.default_rng(self.seed)


@dataclass(frozen=True)
class Sent:
    """A vector on each rank, and how many of its entries each sends."""

    counts: tuple[int, ...]
    n: int
    dtype: str
    seed: int

    @property
    def ranks(self) -> int:
        return len(self.counts)

    def __str__(self) -> str:
        each = ", ".join(str(min(k, self.n)) for k in self.counts)
        return f"{counted(self.ranks, 'rank')} sending {each} of {entries(self.n)} of {self.dtype}"


@dataclass(frozen=True)
class Steps:
    """Some steps with momentum, on each rank, of which k entries are sent."""

    ranks: int
    n: int
    share: float
    momentum: float
    masking: bool
    seed: int

    @property
    def k(self) -> int:
        return max(1, round(self.share * self.n))

    def __str__(self) -> str:
        masking = "masking" if self.masking else "no masking"
        what = f"{self.k} of {entries(self.n)}, momentum {self.momentum}, {masking}"
        return f"{counted(self.ranks, 'rank')} sending {what}"


def entries(n: int) -> str:
    return f"{n} entr{'y' if n == 1 else 'ies'}"


# A counter-example shrinks to the first of a list: a usual size, where the unusual ones are not to blame.
LENGTHS = st.sampled_from([4, 3, 2, 5, 1, *range(6, 18)])
COUNTS = st.lists(st.sampled_from([2, 1, 3, 0, 4]), min_size=1, max_size=5).map(tuple)
DTYPES = st.sampled_from(["float64", "float32"])
SEEDS = st.integers(0, 2**16)
VECTORS = st.builds(Vector, LENGTHS, st.sampled_from([2, 1, 3, 4, 9]), DTYPES, SEEDS)
MESSAGES = st.builds(Vector, LENGTHS, st.sampled_from([2, 1, 3, 4, 0]), DTYPES, SEEDS)
SENT = st.builds(Sent, COUNTS, LENGTHS, DTYPES, SEEDS)
STEPPED = st.builds(
    Steps,
    st.integers(1, 5),
    LENGTHS,
    st.sampled_from([1.0, 0.5, 0.25]),
    st.sampled_from([0.5, 0.25, 0.75]),
    st.booleans(),
    SEEDS,
)
