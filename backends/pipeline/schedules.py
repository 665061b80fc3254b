"""The timetables of pipelined training, each a few lines: naive, GPipe, one forward one backward, ...

Lecture section: pipelining. Lesson: 13_pipeline.
"""

from __future__ import annotations

from collections.abc import Iterator

from .schedule import Backward, Forward, Instruction, Schedule


def naive(rank: int, ranks: int, micros: int, chunks: int) -> Iterator[Instruction]:
    """Each micro-batch forward and back before the next one comes: one rank is busy at a time."""
    for micro in range(micros):
        yield Forward(micro)
        yield Backward(micro)


def gpipe(rank: int, ranks: int, micros: int, chunks: int) -> Iterator[Instruction]:
    """All micro-batches forward, then all back: fill and drain (Huang et al. 2019)."""
    yield from map(Forward, range(micros))
    yield from map(Backward, range(micros))


def one_f_one_b(rank: int, ranks: int, micros: int, chunks: int) -> Iterator[Instruction]:
    """After ranks - rank - 1 forwards one forward, one backward in turn (Narayanan et al. 2021)."""
    ahead = min(micros, ranks - rank - 1)
    yield from map(Forward, range(ahead))
    for micro in range(micros):
        if micro + ahead < micros:
            yield Forward(micro + ahead)
        yield Backward(micro)


SCHEDULES = {
    schedule.name: schedule
    for schedule in (
        Schedule(naive, most_in_flight=lambda rank, ranks, micros, chunks: 1),
        Schedule(gpipe, most_in_flight=lambda rank, ranks, micros, chunks: micros),
        Schedule(
            one_f_one_b, "1f1b", most_in_flight=lambda rank, ranks, micros, chunks: min(micros, ranks - rank)
        ),
    )
}
