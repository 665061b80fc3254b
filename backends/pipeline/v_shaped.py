"""Every rank has a stage of the way down and one of the way up: the last stage is on the first rank.

Lecture section: pipelining. Lesson: 13_pipeline, by ``schedules.py``. Of p ranks rank r holds stage r as
chunk 0, and stage 2 p - 1 - r as chunk 1, so that the loss is on rank 0, and the last rank sends nothing
between its two chunks.
"""

from __future__ import annotations

from collections.abc import Iterator

from .bidirectional import eight_steps, in_steps, two_chunks
from .schedule import Schedule, take
from .timetable import Instruction, Place


def down_and_up(micro: int, ranks: int, micros: int, chunks: int) -> list[Place]:
    """From the first rank to the last, and back."""
    return [(rank, 0) for rank in range(ranks)] + [(rank, 1) for rank in reversed(range(ranks))]


def zb_v(rank: int, ranks: int, micros: int, chunks: int) -> Iterator[Instruction]:
    """No rank waits between its first and last instruction (Qi et al. 2023, ZB-V).

    This holds where forward, backward and weights take equally long and there are 2 ranks - 1 micro-batches
    or more. Each rank holds activations of as many micro-batches as there are ranks, in two halves, as 1F1B's
    first rank does; this is the memory of 1F1B if a layer keeps no more between B and W than before B.

    >>> print(text_of_plan("zb-v", ranks=2, micros=3, weight=1))
    rank 0 |0   1   2   0'  b0' w0' 1'  b1' w1' b0  w0  2'  b2' w2' b1  w1  b2  w2  .  | 5% idle
    rank 1 |.   0   0'  1   1'  b0' w0' 2   b0  w0  2'  b1' w1' b1  b2' b2  w1  w2' w2 | 5% idle
    0 forward, b0 backward, w0 weight gradients of micro-batch 0  ' chunk 1  . idle
    """
    # Built for more micro-batches; the missing ones are dropped.
    behind, most = ranks - rank, max(micros, 2 * ranks - 1)
    steps = (
        (2 * behind - 1, "F0"),
        (rank, "F1 F0"),
        (behind, "F1 b1 W1"),
        (most - 2 * ranks + rank + 1, "F0 b0 W0 F1 b1 W1"),
        (behind - 1, "b0 W0 F1 b1 W1"),
        (rank, "b0 b1"),
        (behind, "b0 W0"),
        (rank, "W1"),
        (rank, "W0"),
    )
    instructions = in_steps(steps, [(chunk, range(most)) for chunk in (0, 1)])
    return (i for i in instructions if i.micros[0] < micros)


def dualpipe_v(rank: int, ranks: int, micros: int, chunks: int) -> Iterator[Instruction]:
    """DualPipe cut in half: its second half of the ranks is the way up (DeepSeek-AI 2025, DualPipeV).

    Each rank does what it does in DualPipe on twice as many ranks with twice as many micro-batches; there are
    no second copies of the weights.

    >>> print(text_of_plan("dualpipe-v", ranks=2, micros=4))
    rank 0 |0   1   2   0'  b0' 1'  3   b1' 2'  b0  b2' .   3'  b1  b3' b2  .   b3 | 11% idle
    rank 1 |.   0   0'  1   1'  2   b0' 2'  b0  3   b1' 3'  b1  b2' b2  b3' b3  .  | 11% idle
    0 forward, b0 backward of micro-batch 0  ' chunk 1  . idle
    """
    return eight_steps(rank, ranks - 1 - rank, [(chunk, range(micros)) for chunk in (0, 1)])


def full(ranks: int, micros: int, chunks: int) -> None:
    """Raise ValueError unless there are two chunks, and at least two micro-batches for each rank."""
    two_chunks(ranks, micros, chunks)
    take(f"2 micro-batches or more for each of the {ranks} ranks", micros, step=1, least=2 * ranks)


SCHEDULES = (
    Schedule(
        zb_v,
        route=down_and_up,
        check=two_chunks,
        chunks=2,
        most_in_flight=lambda rank, n: min(2 * n.micros, n.micros + 1 + rank, 2 * n.ranks),
    ),
    Schedule(
        dualpipe_v, route=down_and_up, check=full, chunks=2, most_in_flight=lambda rank, n: 2 * n.ranks + 1
    ),
)
