"""The instructions of a pipeline's ranks, written out: all that the engine knows of a schedule.

Lecture section: pipelining. Lesson: 13_pipeline. The same instructions are checked, simulated, drawn and run.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ..words import numbers

if TYPE_CHECKING:
    from .schedule import Schedule


@dataclass(frozen=True)
class Pass:
    """An instruction for one micro-batch in one of the rank's chunks of layers."""

    micro: int
    chunk: int = 0

    @property
    def micros(self) -> tuple[int, ...]:
        return (self.micro,)


class Forward(Pass):
    """Take a micro-batch forward through a chunk."""


class Backward(Pass):
    """Take a micro-batch back; where a ``Weight`` of it follows, without the gradients of the weights."""


@dataclass(frozen=True)
class Weight:
    """Compute the gradients of a chunk's weights for some micro-batches, where possible in one product."""

    micros: tuple[int, ...]
    chunk: int = 0


Instruction = Forward | Backward | Weight
Place = tuple[int, int]
"""A rank and one of its chunks, which hold a stage, a part of the model."""


@dataclass(frozen=True)
class Timetable:
    """A schedule written out: ``instructions[rank]`` in order, ``routes[micro]`` the place of each stage."""

    schedule: Schedule
    ranks: int
    micros: int
    chunks: int
    instructions: tuple[tuple[Instruction, ...], ...]
    routes: tuple[tuple[Place, ...], ...]

    def __repr__(self) -> str:
        return (
            f"Timetable({self.schedule.name}, {self.ranks} ranks, {self.micros} micros, {self.chunks} chunks)"
        )

    def _repr_svg_(self) -> str:
        """The picture that a notebook shows: each rank's instructions in order, without their times."""
        from ..pictures.schedule_picture import picture_of_order

        return picture_of_order(self)

    @property
    def stages(self) -> int:
        """The number of parts of the model."""
        return len(self.routes[0])

    def stage(self, micro: int, rank: int, chunk: int) -> int:
        """The stage of a chunk for a micro-batch; ValueError where its route does not pass the chunk."""
        return self.routes[micro].index((rank, chunk))

    def stages_of(self, rank: int) -> dict[int, int]:
        """The stage of each of the rank's chunks, by chunk."""
        stages = {(chunk, s) for route in self.routes for s, (r, chunk) in enumerate(route) if r == rank}
        return dict(sorted(stages))

    @cached_property
    def split(self) -> tuple[frozenset[tuple[int, int]], ...]:
        """By rank, the (micro-batch, chunk) pairs whose weight gradients it computes in a ``Weight``."""
        weights = [[i for i in mine if isinstance(i, Weight)] for mine in self.instructions]
        return tuple(frozenset((micro, i.chunk) for i in mine for micro in i.micros) for mine in weights)


def span_name(instruction: Instruction) -> str:
    """The name of an instruction's span in a trace: "forward 3", "weight 0-3", "backward 3/1" for chunk 1."""
    name = f"{type(instruction).__name__.lower()} {numbers(instruction.micros)}"
    return f"{name}/{instruction.chunk}" if instruction.chunk else name


def present(instructions: Iterable[Instruction], micros: Container[int]) -> Iterator[Instruction]:
    """The instructions for ``micros`` alone; those for none of these micro-batches are left out."""
    for i in instructions:
        if some := tuple(micro for micro in i.micros if micro in micros):
            yield Weight(some, i.chunk) if isinstance(i, Weight) else i
