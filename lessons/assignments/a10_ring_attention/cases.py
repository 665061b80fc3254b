"""The cases of assignment a10, and whole attention by loops, which results are compared with."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import exp, inf, log, sqrt
from typing import NamedTuple

import numpy as np

LARGE = 1e4  # scores whose exponentials no float64 holds


@dataclass(frozen=True)
class Keys:
    """Queries and keys on one rank, with a mask; nothing is sent."""

    queries: int
    keys: int
    width: int
    mask: str
    large: bool
    seed: int
    ranks = 1

    def __str__(self) -> str:
        scores = ", large scores" if self.large else ""
        sizes = f"{counted(self.queries, 'query')}, {counted(self.keys, 'key')}, D = {self.width}"
        return f"{sizes}, mask: {self.mask}{scores}"

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        rng = np.random.default_rng([self.seed, 0])
        q, k, v = (rng.normal(size=(n, self.width)) for n in (self.queries, self.keys, self.keys))
        return (sqrt(LARGE) * q, sqrt(LARGE) * k, v) if self.large else (q, k, v)

    def allowed(self) -> np.ndarray:
        """Which query may see which key."""
        shape = self.queries, self.keys
        if self.mask == "all":
            return np.ones(shape, bool)
        if self.mask == "none":
            return np.zeros(shape, bool)
        allowed = np.random.default_rng([self.seed, 1]).random(shape) < 0.6
        if self.mask == "the first query sees nothing":
            allowed[:1] = False
        return allowed

    def masks(self) -> list[np.ndarray]:
        """The mask of each part of the keys."""
        return [self.allowed()]


@dataclass(frozen=True)
class Pieces(Keys):
    """The keys in parts of these sizes, merged in some order."""

    sizes: tuple[int, ...]

    def __str__(self) -> str:
        return f"{super().__str__()}, in parts of {', '.join(map(str, self.sizes))}"

    def masks(self) -> list[np.ndarray]:
        return np.split(self.allowed(), np.cumsum(self.sizes[:-1]), axis=1)


@dataclass(frozen=True)
class Row:
    """So many tokens on so many ranks; nothing is sent."""

    tokens: int
    of_ranks: int
    ranks = 1

    def __str__(self) -> str:
        return f"{counted(self.tokens, 'token')}, {counted(self.of_ranks, 'rank')}"


@dataclass(frozen=True)
class Ring:
    """A row of documents, which are cut over ranks in some order."""

    ranks: int
    tokens: int
    width: int
    order: str
    documents: str
    seed: int

    def __str__(self) -> str:
        sizes = f"{counted(self.ranks, 'rank')}, {counted(self.tokens, 'token')}, D = {self.width}"
        return f"{sizes}, order: {self.order}, documents: {self.documents}"

    def columns(self) -> list[np.ndarray]:
        """The places in the row of each rank's tokens."""
        places, p = np.arange(self.tokens), self.ranks
        if self.order == "plain":
            return np.array_split(places, p)
        if self.order == "zig-zag":
            blocks = np.array_split(places, 2 * p)
            return [np.concatenate([blocks[rank], blocks[-1 - rank]]) for rank in range(p)]
        rng = np.random.default_rng([self.seed, 2])
        owner = rng.integers(0, p, self.tokens)
        return [places[owner == rank] for rank in range(p)]

    def document_numbers(self) -> np.ndarray:
        """For each place the number of its document, -1 for padding."""
        numbers = np.zeros(self.tokens, int)
        if self.documents == "one":
            return numbers
        rng = np.random.default_rng([self.seed, 3])
        starts = rng.random(self.tokens) < 0.3
        numbers = np.cumsum(starts)
        if self.documents == "several, padding":
            numbers[len(numbers) - len(numbers) // 4 :] = -1
        return numbers

    def arrays(self) -> tuple[np.ndarray, ...]:
        """q, k, v and the gradient g of the whole row."""
        return tuple(np.random.default_rng([self.seed, 4]).normal(size=(4, self.tokens, self.width)))

    def allowed(self) -> np.ndarray:
        """Which place may see which, by a loop over both."""
        documents = self.document_numbers()
        allowed = np.zeros((self.tokens, self.tokens), bool)
        for query in range(self.tokens):
            for key in range(query + 1):
                allowed[query, key] = documents[query] == documents[key] >= 0
        return allowed


@dataclass(frozen=True)
class Clock:
    """A ring in zig-zag order with blocks of ``block`` tokens, on a clock.

    A pair takes a time of 1, and a message of n bytes n / ``bandwidth``.
    """

    of_ranks: int
    block: int
    width: int
    bandwidth: float
    seed: int
    ranks = 1  # the check starts the ranks itself, on a clock of theirs

    def __str__(self) -> str:
        sizes = f"{counted(self.of_ranks, 'rank')}, {counted(self.ring().tokens, 'token')}, D = {self.width}"
        return f"{sizes}, a pair takes 1, a byte {1 / self.bandwidth:g}"

    def ring(self) -> Ring:
        return Ring(self.of_ranks, 2 * self.of_ranks * self.block, self.width, "zig-zag", "one", self.seed)

    def times(self) -> tuple[float, float, float]:
        """What the first tile, any later tile, and the two messages of a step take."""
        n = 2 * self.block
        return n * n / 2 + n / 2, n * n / 2, 2 * 8 * n * self.width / self.bandwidth

    def seconds(self, overlap: bool = True) -> float:
        """How long the ring takes: each step but the last has messages, which wait for nothing."""
        own, later, messages = self.times()
        tiles = [own] + (self.of_ranks - 1) * [later]
        steps = [max(tile, messages) if overlap else tile + messages for tile in tiles[:-1]]
        return sum(steps) + tiles[-1]


class Attention(NamedTuple):
    """What whole attention gives: o, lse and the gradients of q, k and v."""

    o: np.ndarray
    lse: np.ndarray
    dq: np.ndarray
    dk: np.ndarray
    dv: np.ndarray


def attention(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, allowed: np.ndarray, g: np.ndarray | None = None
) -> Attention:
    """Attention of all queries on all keys that they may see, query by query, and its gradients."""
    n, width = q.shape
    g = np.zeros((n, v.shape[1])) if g is None else g
    result = Attention(
        np.zeros((n, v.shape[1])), np.full(n, -inf), np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    )
    for i in range(n):
        visible = np.flatnonzero(allowed[i])
        if not len(visible):
            continue
        scores = [float(sum(q[i] * k[j])) / sqrt(width) for j in visible]
        largest = max(scores)
        total = sum(exp(score - largest) for score in scores)
        weights = [exp(score - largest) / total for score in scores]
        result.lse[i] = largest + log(total)
        for j, weight in zip(visible, weights, strict=True):
            result.o[i] += weight * v[j]
        for j, weight in zip(visible, weights, strict=True):
            slope = weight * float(sum(g[i] * (v[j] - result.o[i]))) / sqrt(width)
            result.dq[i] += slope * k[j]
            result.dk[j] += slope * q[i]
            result.dv[j] += weight * g[i]
    return result


@cache
def whole(case: Ring) -> Attention:
    """The whole row's attention on one rank."""
    q, k, v, g = case.arrays()
    return attention(q, k, v, case.allowed(), g)


def counted(n: int, noun: str) -> str:
    plural = f"{noun[:-1]}ies" if noun.endswith("y") and not noun.endswith("ey") else f"{noun}s"
    return f"{n} {noun if n == 1 else plural}"
