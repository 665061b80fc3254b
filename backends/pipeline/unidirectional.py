"""Every micro-batch goes down the ranks and back up; the order on each rank decides time and memory.

Lecture section: pipelining. Lesson: 13_pipeline. Naive, GPipe, one forward one backward, interleaved;
``gantt.text_of_plan`` draws them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from .schedule import Schedule, take
from .timetable import Backward, Forward, Instruction


def naive(rank: int, ranks: int, micros: int, chunks: int) -> Iterator[Instruction]:
    """Each micro-batch forward and back before the next one comes: one rank is busy at a time.

    >>> print(text_of_plan("naive", ranks=3, micros=2))
    rank 0 |0  .  .  .  .  b0 1  .  .  .  .  b1| 67% idle
    rank 1 |.  0  .  .  b0 .  .  1  .  .  b1 . | 67% idle
    rank 2 |.  .  0  b0 .  .  .  .  1  b1 .  . | 67% idle
    0 forward, b0 backward of micro-batch 0  . idle
    """
    for micro in range(micros):
        yield Forward(micro)
        yield Backward(micro)


def gpipe(rank: int, ranks: int, micros: int, chunks: int) -> Iterator[Instruction]:
    """All micro-batches forward, then all back: fill and drain (Huang et al. 2019).

    >>> print(text_of_plan("gpipe", ranks=4, micros=4))
    rank 0 |0  1  2  3  .  .  .  .  .  .  b0 b1 b2 b3| 43% idle
    rank 1 |.  0  1  2  3  .  .  .  .  b0 b1 b2 b3 . | 43% idle
    rank 2 |.  .  0  1  2  3  .  .  b0 b1 b2 b3 .  . | 43% idle
    rank 3 |.  .  .  0  1  2  3  b0 b1 b2 b3 .  .  . | 43% idle
    0 forward, b0 backward of micro-batch 0  . idle
    """
    yield from map(Forward, range(micros))
    yield from map(Backward, range(micros))


def one_f_one_b(rank: int, ranks: int, micros: int, chunks: int) -> Iterator[Instruction]:
    """After ranks - rank - 1 forwards one forward, one backward in turn (Narayanan et al. 2021).

    >>> print(text_of_plan("1f1b", ranks=4, micros=4))
    rank 0 |0  1  2  3  .  .  .  b0 .  b1 .  b2 .  b3| 43% idle
    rank 1 |.  0  1  2  .  .  b0 3  b1 .  b2 .  b3 . | 43% idle
    rank 2 |.  .  0  1  .  b0 2  b1 3  b2 .  b3 .  . | 43% idle
    rank 3 |.  .  .  0  b0 1  b1 2  b2 3  b3 .  .  . | 43% idle
    0 forward, b0 backward of micro-batch 0  . idle
    """
    return in_turn(map(Forward, range(micros)), map(Backward, range(micros)), ahead=ranks - rank - 1)


def interleaved(rank: int, ranks: int, micros: int, chunks: int) -> Iterator[Instruction]:
    """1F1B in which as many micro-batches as there are ranks pass chunk after chunk (Narayanan et al. 2021).

    A chunk is shorter than a stage of 1F1B, so the pipeline fills and drains sooner. A rank is two forwards
    ahead of the next, not one: during a message it works on another micro-batch.

    >>> print(text_of_plan("interleaved", ranks=2, micros=4))
    rank 0 |0   1   0'  1'  2   b0' 3   b1' 2'  b0  3'  b1  .   b2' .   b3' b2  b3 | 11% idle
    rank 1 |.   0   1   0'  b0' 1'  b1' 2   b0  3   b1  2'  b2' 3'  b3' b2  b3  .  | 11% idle
    0 forward, b0 backward of micro-batch 0  ' chunk 1  . idle
    """
    turns = [
        (first + i, chunk)
        for first in range(0, micros, ranks)
        for chunk in range(chunks)
        for i in range(ranks)
    ]
    forwards = [Forward(micro, chunk) for micro, chunk in turns]
    backwards = [Backward(micro, chunks - 1 - chunk) for micro, chunk in turns]
    return in_turn(forwards, backwards, ahead=2 * (ranks - rank - 1) + (chunks - 1) * ranks)


def in_turn(
    forwards: Iterable[Forward], backwards: Iterable[Backward], *, ahead: int
) -> Iterator[Instruction]:
    """``ahead`` forwards, then one forward and one backward in turn, then the remaining backwards."""
    rest = iter(forwards)
    yield from islice(rest, ahead)
    for backward in backwards:
        yield from islice(rest, 1)
        yield backward


def groups_of_ranks(ranks: int, micros: int, chunks: int) -> None:
    """Raise ValueError where the micro-batches are not a multiple of the ranks."""
    take(f"micro-batches in multiples of the {ranks} ranks", micros, step=ranks, least=ranks)


SCHEDULES = (
    Schedule(naive, most_in_flight=lambda rank, n: 1),
    Schedule(gpipe, most_in_flight=lambda rank, n: n.micros),
    Schedule(one_f_one_b, "1f1b", most_in_flight=lambda rank, n: min(n.micros, n.ranks - rank)),
    Schedule(
        interleaved,
        check=groups_of_ranks,
        chunks=2,
        most_in_flight=lambda rank, n: min(
            n.micros * n.chunks, 2 * (n.ranks - rank - 1) + (n.chunks - 1) * n.ranks + 1
        ),
    ),
)
