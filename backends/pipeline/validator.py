"""A schedule is right if every micro-batch passes every stage once each way, and no rank waits for ever.

Lecture section: pipelining. Lesson: 13_pipeline. The checks read a timetable and compute nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from .schedule import Schedule
from .simulation import in_flight, simulate
from .timetable import Backward, Forward, Instruction, Place, Timetable, Weight

Bound = int | Sequence[int]  # the same for all ranks, or one for each


def check_schedule(
    schedule: Schedule, ranks: int, micros: int, chunks: int | None = None, bound: Bound | None = None
) -> Timetable:
    """The schedule's timetable for these numbers; raises ValueError as ``check_timetable`` does."""
    table = schedule.of(ranks, micros, chunks)
    check_timetable(table, bound)
    return table


def check_timetable(table: Timetable, bound: Bound | None = None) -> None:
    """Raise ValueError, naming rank and instruction, for a timetable that would not train the model.

    Every micro-batch passes all stages, is taken forward once in each, and back once after that; a chunk of
    a rank is the same stage for all. A ``Weight`` comes after the ``Backward`` of each of its micro-batches,
    which then computes input gradients only; a ``Backward`` without one is full, and a chunk may have both.

    No rank has more micro-batches in flight, from the forward to the last gradient, than ``bound`` or, where
    none is given, than the schedule promises. No rank waits for ever: ``Stuck`` names those that do.
    Messages are taken to be started early and finished late, as the engine does.
    """
    try:
        check_routes(table)
        for rank in range(table.ranks):
            check_order(table, rank)
        for rank in range(table.ranks):
            check_memory(table, rank, bound)
    except ValueError as error:
        error.args = (f"schedule {table.schedule.name} of {table.ranks} ranks: {error}",)
        raise
    simulate(table)


def check_routes(table: Timetable) -> None:
    """Every route passes as many stages, and a chunk of a rank is the same stage in all that pass it."""
    first: dict[Place, tuple[int, int]] = {}  # the stage that it is, and for which micro-batch
    for micro, route in enumerate(table.routes):
        if len(route) != table.stages:
            raise ValueError(
                f"the route of micro-batch {micro} has {len(route)} stages, that of micro-batch 0 has "
                f"{table.stages}; each needs all parts of the model"
            )
        for stage, (rank, chunk) in enumerate(route):
            if rank not in range(table.ranks) or chunk not in range(table.chunks):
                raise ValueError(
                    f"the route of micro-batch {micro} goes to rank {rank}, chunk {chunk} for stage {stage}; "
                    f"there are ranks 0 to {table.ranks - 1} and chunks 0 to {table.chunks - 1}"
                )
            other, by = first.setdefault((rank, chunk), (stage, micro))
            if other != stage:
                raise ValueError(
                    f"rank {rank}, chunk {chunk} is stage {other} for micro-batch {by} and stage {stage} for "
                    f"micro-batch {micro}; it holds one part of the model"
                )
    for place in ((rank, chunk) for rank in range(table.ranks) for chunk in range(table.chunks)):
        if place not in first:
            raise ValueError(f"no route goes to rank {place[0]}, chunk {place[1]}; it would hold no layers")


def check_order(table: Timetable, rank: int) -> None:
    """A rank does what its micro-batches need once: forward, then back, then any weights apart."""
    mine = table.instructions[rank]
    for i in mine:
        check_instruction(table, rank, i)
    complete = {part for i in mine for part in parts(i)}
    before: set[Instruction] = set()
    for i in mine:
        for part in parts(i):
            if part in before:
                again = "" if part == i else f" does {part}"
                raise ValueError(f"rank {rank}: {i}{again} a second time; each is done once")
            kind, way = (Backward, "back") if isinstance(part, Weight) else (Forward, "forward")
            earlier = None if isinstance(part, Forward) else kind(part.micros[0], part.chunk)
            if earlier is not None and earlier not in before:
                how = "comes before" if earlier in complete else "is there without"
                raise ValueError(f"rank {rank}: {i} {how} {earlier}; take it {way} first")
            before.add(part)
    for micro, route in enumerate(table.routes):
        for stage, (at, chunk) in enumerate(route):
            for needed in (Forward(micro, chunk), Backward(micro, chunk)) if at == rank else ():
                if needed not in complete:
                    raise ValueError(
                        f"rank {rank}: {needed} is missing; micro-batch {micro} finds stage {stage} there"
                    )


def check_instruction(table: Timetable, rank: int, i: Instruction) -> None:
    """An instruction is for micro-batches that exist and whose routes pass the chunk."""
    if not isinstance(i, Forward | Backward | Weight):
        raise ValueError(f"rank {rank}: {i!r} is no instruction; there are Forward, Backward and Weight")
    if isinstance(i, Weight) and not isinstance(i.micros, tuple):
        raise ValueError(f"rank {rank}: {i} needs a tuple of micro-batches, such as Weight((0,))")
    if not i.micros:
        raise ValueError(f"rank {rank}: {i} is for no micro-batches; name some, or leave it out")
    if i.chunk not in range(table.chunks):
        raise ValueError(f"rank {rank}: {i} is for chunk {i.chunk}; there are 0 to {table.chunks - 1}")
    for micro in i.micros:
        if micro not in range(table.micros):
            raise ValueError(
                f"rank {rank}: {i} is for micro-batch {micro}; there are 0 to {table.micros - 1}"
            )
        if (rank, i.chunk) not in table.routes[micro]:
            raise ValueError(
                f"rank {rank}: {i} is not on the route of micro-batch {micro}, which goes to "
                + ", ".join(f"rank {r} chunk {c}" for r, c in table.routes[micro])
            )


def parts(i: Instruction) -> list[Instruction]:
    """The instruction as one for each of its micro-batches."""
    return [Weight((micro,), i.chunk) for micro in i.micros] if isinstance(i, Weight) else [i]


def check_memory(table: Timetable, rank: int, bound: Bound | None) -> None:
    """No more micro-batches are in flight, each in one chunk, than ``bound`` or the schedule's promise."""
    promise, whose = table.schedule.most_in_flight, "the bound given"
    if isinstance(bound, Sequence):
        if len(bound) != table.ranks:
            raise ValueError(f"{len(bound)} bounds were given; give one number, or {table.ranks}")
        bound = bound[rank]
    elif bound is None and promise is not None:
        bound, whose = promise(rank, table), "the schedule's most_in_flight"
    if bound is None:
        return
    for i, number in zip(table.instructions[rank], in_flight(table, rank, until_weight=True), strict=True):
        if number > bound:
            raise ValueError(
                f"rank {rank}: {i} makes {number} micro-batches in flight; {whose} is {bound}: "
                "finish one first"
            )
