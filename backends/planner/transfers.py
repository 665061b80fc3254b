"""What each rank sends in a collective, exactly, and what that takes by the alpha-beta model.

Sizes are in numbers. Lecture section: what a cluster would do. Lesson: 15_scale, by ``rank_step.py``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache

from minigrad.data import shares

from ..comm.collectives.costs import Machine, allreduce_seconds, fastest_allreduce
from ..comm.collectives.link import Link
from ..sequence_parallel.token_order import columns_of

COUNT = 8  # bytes of a number of rows
Sizes = tuple[int, ...]
"""What each rank of an axis has: tokens, heads, or numbers."""


def part_sizes(n: int, ranks: int) -> Sizes:
    """The sizes of the parts that ``shares`` makes of n."""
    return tuple(share.stop - share.start for share in shares(n, ranks))


@lru_cache(maxsize=256)
def token_sizes(tokens: int, ranks: int, form: str) -> Sizes:
    """The tokens of each of the ranks that share rows: in zig-zag order for a "ring", else consecutive."""
    columns = columns_of(tokens, ranks, "zigzag" if form == "ring" else "contiguous")
    return tuple(len(own) for own in columns)


class Transfer(ABC):
    """One exchange among the ranks of an axis."""

    @abstractmethod
    def sent(self, rank: int) -> int:
        """The numbers that ``rank`` sends to others."""

    def nbytes(self, rank: int, itemsize: int) -> int:
        """The bytes that ``rank`` sends to others, for numbers of ``itemsize`` bytes."""
        return itemsize * self.sent(rank)

    @abstractmethod
    def seconds(self, link: Link, itemsize: int) -> float:
        """What it takes until the last rank has all, for numbers of ``itemsize`` bytes."""


@dataclass(frozen=True)
class AllReduce(Transfer):
    """A sum of ``numbers`` over ``ranks``: 2 (p-1)/p of them a rank around a ring, and by halving too.

    The law counts the messages of ``ring_allreduce``. The time is that of the fastest algorithm of
    ``comm/collectives/costs.py``, where every rank has a link of its own.
    """

    numbers: int
    ranks: int

    def sent(self, rank: int) -> int:
        if self.ranks == 1:
            return 0
        chunks = part_sizes(self.numbers, self.ranks)
        return 2 * self.numbers - sum(chunks[(rank + hops) % self.ranks] for hops in (1, 2))

    def seconds(self, link: Link, itemsize: int) -> float:
        return seconds_of_sum(self.numbers * itemsize, self.ranks, link)


@lru_cache(maxsize=4096)
def seconds_of_sum(nbytes: int, ranks: int, link: Link) -> float:
    """Seconds of the fastest all-reduce of ``nbytes``."""
    if ranks == 1:
        return 0.0
    machine = Machine([0] * ranks, link, link)
    return allreduce_seconds(fastest_allreduce(nbytes, machine), nbytes, machine)


@dataclass(frozen=True)
class AllGather(Transfer):
    """The parts of all ranks, which have these ``sizes``, on every rank.

    The law counts the messages of ``allgather``: a rank passes on all parts but its successor's.
    """

    sizes: Sizes

    def sent(self, rank: int) -> int:
        return sum(self.sizes) - self.sizes[(rank + 1) % len(self.sizes)]

    def seconds(self, link: Link, itemsize: int) -> float:
        return (len(self.sizes) - 1) * link.seconds(max(self.sizes) * itemsize)


class ReduceScatter(AllGather):
    """The sum over the ranks, of which each gets the part that has its size: an ``AllGather`` backwards.

    The law counts the messages of ``reduce_scatter``: a rank sends all parts but its own.
    """

    def sent(self, rank: int) -> int:
        return sum(self.sizes) - self.sizes[rank]


@dataclass(frozen=True)
class KeyRing(Transfer):
    """Keys and values of ``rows`` samples go round ring attention, ``width`` numbers of each for a token.

    Forward a block makes p - 1 hops. ``backward`` it makes them again, and its gradients follow it home: they
    begin behind the first hop, and also make p - 1. Where p divides S tokens that is 6 (p-1)/p B S h numbers
    a rank. The law moves every block by loops (Liu et al. 2023).
    """

    rows: int
    tokens: Sizes
    width: int
    backward: bool = False

    def sent(self, rank: int) -> int:
        p = len(self.tokens)
        hops = range(p - 1)
        tokens = sum(self.tokens[(rank - t) % p] for t in hops)
        if self.backward:
            tokens += sum(self.tokens[(rank - 1 - t) % p] for t in hops)
        return 2 * self.rows * self.width * tokens

    def seconds(self, link: Link, itemsize: int) -> float:
        hops = (len(self.tokens) - 1) * (2 if self.backward else 1)
        return hops * link.seconds(2 * self.rows * self.width * max(self.tokens) * itemsize)


@dataclass(frozen=True)
class HeadsAllToAll(Transfer):
    """Queries, keys and values by tokens become whole rows by heads, and the heads' output goes back.

    Arrays are (rows, tokens, heads, ``size``). ``backward`` the gradients take the same ways, one array there
    and three back. Where p divides both, 8 (p-1)/p^2 B S h numbers a rank in both passes. The law moves every
    number by loops (Jacobs et al. 2023, DeepSpeed-Ulysses).
    """

    rows: int
    tokens: Sizes
    heads: Sizes
    size: int
    backward: bool = False

    def sent(self, rank: int) -> int:
        to_heads = self.tokens[rank] * (sum(self.heads) - self.heads[rank])
        to_tokens = self.heads[rank] * (sum(self.tokens) - self.tokens[rank])
        there, back = (1, 3) if self.backward else (3, 1)
        return self.rows * self.size * (there * to_heads + back * to_tokens)

    def seconds(self, link: Link, itemsize: int) -> float:
        p = len(self.tokens)
        most = max(map(self.sent, range(p)))
        return 2 * (p - 1) * link.latency + most * itemsize / link.bandwidth if p > 1 else 0.0


@dataclass(frozen=True)
class ExpertAllToAll(Transfer):
    """Each rank's ``rows_of[rank][expert]`` rows travel to the expert's rank, and its results back.

    ``own`` are the experts of each rank. In both passes a rank sends ``2 width`` numbers for every row that
    it gives to others and for every row that others give to it; forward it also announces how many rows each
    of the E - E_r other experts gets, in 8 bytes. The law moves every row by loops (Lepikhin et al. 2020,
    section 3).
    """

    width: int
    rows_of: tuple[Sizes, ...]
    own: Sizes

    def sent(self, rank: int) -> int:
        first = sum(self.own[:rank])
        mine = range(first, first + self.own[rank])
        to_others = sum(n for e, n in enumerate(self.rows_of[rank]) if e not in mine)
        from_others = sum(rows[e] for other, rows in enumerate(self.rows_of) for e in mine if other != rank)
        return 2 * self.width * (to_others + from_others)

    def nbytes(self, rank: int, itemsize: int) -> int:
        return itemsize * self.sent(rank) + COUNT * (sum(self.own) - self.own[rank])

    def seconds(self, link: Link, itemsize: int) -> float:
        p = len(self.own)
        most = max(self.nbytes(rank, itemsize) for rank in range(p))
        return 5 * (p - 1) * link.latency + most / link.bandwidth if p > 1 else 0.0
