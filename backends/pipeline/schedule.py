"""A schedule is a list of instructions for each rank: its micro-batches' forwards and backwards in order.

Lecture section: pipelining. Lesson: 13_pipeline. A schedule knows neither messages nor models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

from minigrad.keyword_settings import name_of
from minigrad.lookup import at_least_one

from .timetable import Instruction, Place, Timetable

Order = Callable[[int, int, int, int], Iterator[Instruction]]
"""``order(rank, ranks, micros, chunks)`` yields one rank's instructions."""
Route = Callable[[int, int, int, int], list[Place]]
"""``route(micro, ranks, micros, chunks)``: the places of the model's stages 0, 1, ... for a micro-batch."""


def around(micro: int, ranks: int, micros: int, chunks: int) -> list[Place]:
    """From the first rank to the last, once for each chunk: stage s is chunk s // ranks of rank s % ranks."""
    return [(rank, chunk) for chunk in range(chunks) for rank in range(ranks)]


def one_chunk(ranks: int, micros: int, chunks: int) -> None:
    """Raise ValueError for more than one chunk on each rank."""
    if chunks != 1:
        raise ValueError(f"it has 1 chunk on each rank, not {chunks}; interleaved has more")


def take(what: str, number: int, *, step: int, least: int) -> None:
    """Raise ValueError, naming the nearest valid ones, unless ``number`` is least, least + step, ..."""
    over = (number - least) % step
    if over or number < least:
        nearest = [str(n) for n in (number - over, number - over + step) if n >= least]
        raise ValueError(f"it needs {what}, got {number}; take {' or '.join(nearest or [str(least)])}")


@dataclass(frozen=True)
class Schedule:
    """A pipeline's timetable: ``order`` yields each rank's instructions, ``route`` each micro-batch's places.

    A ``Backward`` of micro-batches for which a ``Weight`` follows on the same rank and chunk computes input
    gradients only. ``name`` is by default the order's own. ``check`` raises ValueError, naming the nearest
    valid ones, for numbers of ranks, micro-batches and chunks for which the schedule is not defined.
    ``chunks`` is the default number of chunks. ``most_in_flight(rank, table)`` is an upper bound of the
    number of micro-batches whose activations the rank holds, each in one chunk: from the forward to the
    backward, or to the ``Weight`` if there is one.
    """

    order: Order
    name: str = ""
    route: Route = around
    check: Callable[[int, int, int], None] = one_chunk
    chunks: int = 1
    most_in_flight: Callable[[int, Timetable], int] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name or name_of(self.order).replace("_", "-"))

    def __repr__(self) -> str:
        return f"Schedule({self.name!r}, chunks={self.chunks})"

    def of(self, ranks: int, micros: int, chunks: int | None = None) -> Timetable:
        """The timetable for these numbers; ValueError where the schedule is not defined for them."""
        chunks = self.chunks if chunks is None else chunks
        for what, number in (("ranks", ranks), ("micro-batches", micros), ("chunks", chunks)):
            at_least_one(f"schedule {self.name}: the number of {what}", number)
        try:
            self.check(ranks, micros, chunks)
        except ValueError as error:
            error.args = (f"schedule {self.name}: {error}",)
            raise
        instructions = tuple(self.instructions(rank, ranks, micros, chunks) for rank in range(ranks))
        routes = tuple(tuple(self.route(micro, ranks, micros, chunks)) for micro in range(micros))
        return Timetable(self, ranks, micros, chunks, instructions, routes)

    def instructions(self, rank: int, ranks: int, micros: int, chunks: int) -> tuple[Instruction, ...]:
        """One rank's instructions; ValueError for an order three times as long as a complete one can be."""
        most = 9 * micros * chunks
        instructions = tuple(islice(self.order(rank, ranks, micros, chunks), most + 1))
        if len(instructions) > most:
            raise ValueError(
                f"schedule {self.name}: rank {rank}'s order goes on after {most} instructions, and {micros} "
                f"micro-batches in {chunks} chunks take {3 * micros * chunks} at most; let it end"
            )
        return instructions
