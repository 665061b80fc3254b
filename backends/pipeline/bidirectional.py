"""Half of the micro-batches enter at the first rank, half at the last: each half fills the other's bubble.

Lecture section: pipelining. Lesson: 13_pipeline, by ``schedules.py``. Rank r holds stage r as chunk 0 and
stage ranks - 1 - r as chunk 1, so that every stage is there twice, on two ranks. Even micro-batches go down
the ranks through the chunks 0, odd ones up through the chunks 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat

from .schedule import Schedule, take
from .timetable import Backward, Forward, Instruction, Place, Weight


def down_or_up(micro: int, ranks: int, micros: int, chunks: int) -> list[Place]:
    """Even micro-batches from the first rank to the last, odd ones from the last to the first."""
    down = [(rank, micro % 2) for rank in range(ranks)]
    return down[::-1] if micro % 2 else down


def chimera(rank: int, ranks: int, micros: int, chunks: int) -> Iterator[Instruction]:
    """Two pipelines in opposite directions, each in the time slots that the other leaves free.

    A unit is as many micro-batches as there are ranks, half of them each way; units follow one another (Li
    and Hoefler 2021). A direction takes every other slot, and the number of ranks is even: they never meet.

    >>> print(text_of_plan("chimera", ranks=4, micros=4))
    rank 0 |0   2   .   1'  b1' 3'  b3' b0  .   b2 | 20% idle
    rank 1 |.   0   1'  2   3'  b1' b0  b3' b2  .  | 20% idle
    rank 2 |.   1'  0   3'  2   b0  b1' b2  b3' .  | 20% idle
    rank 3 |1'  3'  .   0   b0  2   b2  b1' .   b3'| 20% idle
    0 forward, b0 backward of micro-batch 0  ' chunk 1  . idle
    """
    slots: dict[int, Instruction] = {}
    for micro in range(micros):
        unit, chunk = micro // ranks, micro % 2
        stage = ranks - 1 - rank if chunk else rank
        entry = 2 * ranks * unit + 2 * (micro % ranks // 2)
        slots[entry + stage] = Forward(micro, chunk)
        slots[entry + 2 * ranks - 1 - stage] = Backward(micro, chunk)
    return (slots[slot] for slot in sorted(slots))


def dualpipe(rank: int, ranks: int, micros: int, chunks: int) -> Iterator[Instruction]:
    """A forward of one direction with a backward of the other; weights fill the rest (DeepSeek-AI 2024).

    The eight steps as published, the sixth on three lines; direction 0 is the one that enters nearer. What
    DualPipe runs as one, overlapped, F0 and B1, is here F0, then B1.

    >>> print(text_of_plan("dualpipe", ranks=4, micros=8))
    rank 0 |0   2   4   1'  b1' 3'  6   b3' 5'  b0  b5' .   7'  b2  b7' b4  .   b6 | 11% idle
    rank 1 |.   0   1'  2   3'  4   b1' 5'  b0  6   b3' 7'  b2  b5' b4  b7' b6  .  | 11% idle
    rank 2 |.   1'  0   3'  2   5'  b0  4   b1' 7'  b2  6   b3' b4  b5' b6  b7' .  | 11% idle
    rank 3 |1'  3'  5'  0   b0  2   7'  b2  4   b1' b4  .   6   b3' b6  b5' .   b7'| 11% idle
    0 forward, b0 backward of micro-batch 0  ' chunk 1  . idle
    """
    inner = min(rank, ranks - 1 - rank)
    nearer = (0, 1) if rank < ranks // 2 else (1, 0)
    chunks_in_order = [(chunk, range(chunk, micros, 2)) for chunk in nearer]
    return eight_steps(inner, ranks // 2 - 1 - inner, chunks_in_order)


def eight_steps(inner: int, outer: int, chunks: Sequence[tuple[int, range]]) -> Iterator[Instruction]:
    """DualPipe's order on a rank with ``outer`` ranks between it and the middle, ``inner`` on the other side.

    ``chunks`` are its two chunks, each with as many micro-batches.
    """
    micros = len(chunks[0][1])
    steps = (
        (2 * outer, "F0"),
        (inner + 1, "F0 F1"),
        (outer, "b1 W F1"),
        (micros - 2 * outer - inner - 1, "F0 B1 F1 B0"),
        (outer, "B1 F1 B0"),
        ((inner + 1) // 2, "B1 B0"),
        ((inner + 1) % 2, "B1 b0"),
        ((inner + 1) // 2, "b1 b0"),
        (outer, "W b0"),
        (inner + 1, "W"),
    )
    return in_steps(steps, chunks)


def in_steps(steps: Iterable[tuple[int, str]], chunks: Sequence[tuple[int, range]]) -> Iterator[Instruction]:
    """The instructions of ``steps``, of which each says how often it is taken, for chunks' micro-batches.

    F0 is the next forward of the first chunk, B1 a full backward of the second, b1 one whose weights wait, W
    the weights that wait longest, and W1 of those of chunk 1.
    """
    forwards = [map(Forward, micros, repeat(chunk)) for chunk, micros in chunks]
    backwards = [map(Backward, micros, repeat(chunk)) for chunk, micros in chunks]
    waiting: list[Weight] = []
    for step in (step for times, text in steps for _ in range(times) for step in text.split()):
        kind, chunk = step[0], step[1:]
        if kind == "F":
            yield next(forwards[int(chunk)])
        elif kind == "W":
            place = next(n for n, i in enumerate(waiting) if chunk in ("", str(i.chunk)))
            yield waiting.pop(place)
        else:
            backward = next(backwards[int(chunk)])
            yield backward
            if kind == "b":
                waiting.append(Weight(backward.micros, backward.chunk))


def two_chunks(ranks: int, micros: int, chunks: int) -> None:
    """Raise ValueError for anything but two chunks."""
    if chunks != 2:
        raise ValueError(f"each rank has 2 chunks, one for each direction, got {chunks}; take 2")


def two_directions(ranks: int, micros: int, chunks: int) -> None:
    """Raise ValueError unless there are two chunks, and even numbers of ranks and micro-batches."""
    two_chunks(ranks, micros, chunks)
    take("an even number of ranks", ranks, step=2, least=2)
    take("an even number of micro-batches, half for each direction", micros, step=2, least=2)


def full_twice(ranks: int, micros: int, chunks: int) -> None:
    """Raise ValueError unless ``two_directions`` holds, with two micro-batches or more for each rank."""
    two_directions(ranks, micros, chunks)
    take(f"2 micro-batches or more for each of the {ranks} ranks", micros, step=2, least=2 * ranks)


SCHEDULES = (
    Schedule(
        chimera,
        route=down_or_up,
        check=two_directions,
        chunks=2,
        most_in_flight=lambda rank, n: (
            min(n.micros, n.ranks) // 2 + min(n.micros // 2, rank + 1, n.ranks - rank)
        ),
    ),
    Schedule(
        dualpipe, route=down_or_up, check=full_twice, chunks=2, most_in_flight=lambda rank, n: n.ranks + 1
    ),
)
