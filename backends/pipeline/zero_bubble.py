"""No rank waits for gradients of weights: they fill the bubble, or are computed later as one large product.

Lecture section: pipelining. Lesson: 13_pipeline, by ``schedules.py``. A full backward is split in two:
``Backward`` computes the gradient of the input, for which the rank before waits; ``Weight`` computes those of
the weights, later.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from minigrad.lookup import at_least_one

from .schedule import Order, Schedule
from .timetable import Backward, Forward, Instruction, Weight
from .unidirectional import gpipe, in_turn, one_f_one_b


def zb_h1(rank: int, ranks: int, micros: int, chunks: int) -> Iterator[Instruction]:
    """1F1B whose rank r computes weights r backwards late, to fill the drain (Qi et al. 2023, ZB-H1).

    All ranks have activations of the same number of micro-batches.

    >>> print(text_of_plan("zb-h1", ranks=4, micros=4, weight=1))
    rank 0 |0  1  2  3  .  .  .  b0 w0 b1 w1 b2 w2 b3 w3| 20% idle
    rank 1 |.  0  1  2  .  .  b0 3  b1 w0 b2 w1 b3 w2 w3| 20% idle
    rank 2 |.  .  0  1  .  b0 2  b1 3  b2 w0 b3 w1 w2 w3| 20% idle
    rank 3 |.  .  .  0  b0 1  b1 2  b2 3  b3 w0 w1 w2 w3| 20% idle
    0 forward, b0 backward, w0 weight gradients of micro-batch 0  . idle
    """
    return with_weights(one_f_one_b(rank, ranks, micros, chunks), behind=rank)


def zb_h2(rank: int, ranks: int, micros: int, chunks: int) -> Iterator[Instruction]:
    """Twice the forwards ahead, twice the delay: no rank waits between its first and last instruction.

    This holds where forward, backward and weights take equally long and there are 2 ranks - 1 micro-batches
    or more. It takes nearly twice the memory of ZB-H1 (Qi et al. 2023, ZB-H2).

    >>> print(text_of_plan("zb-h2", ranks=3, micros=5, weight=1))
    rank 0 |0  1  2  3  4  b0 w0 b1 w1 b2 w2 b3 w3 b4 w4 .  . | 12% idle
    rank 1 |.  0  1  2  b0 3  b1 4  b2 w0 b3 w1 b4 w2 w3 w4 . | 12% idle
    rank 2 |.  .  0  b0 1  b1 2  b2 3  b3 4  b4 w0 w1 w2 w3 w4| 12% idle
    0 forward, b0 backward, w0 weight gradients of micro-batch 0  . idle
    """
    ahead = 2 * (ranks - rank - 1)
    instructions = in_turn(map(Forward, range(micros)), map(Backward, range(micros)), ahead=ahead)
    return with_weights(instructions, behind=2 * rank)


def zb_batched(rank: int, ranks: int, micros: int, chunks: int) -> Iterator[Instruction]:
    """1F1B with two products for the weight gradients: a small one in the drain, a large one at the end.

    The small one has two micro-batches for each rank after this one, if as many have come back.
    For F <= B and m > 3 (p - 1) micro-batches in p stages it takes m (F + B + W) + (p - 1) (B + max(0,
    F - 2 W)).

    >>> print(text_of_plan("zb-batched", ranks=3, micros=4, weight=1))
    rank 0 |0  1  2  .  .  b0 3  w0 b1 .  .  b2 b3 w1-3----| 25% idle
    rank 1 |.  0  1  .  b0 2  b1 3  w0-1- b2 b3 w2-3- .  . | 25% idle
    rank 2 |.  .  0  b0 1  b1 2  b2 3  b3 w0-3------- .  . | 25% idle
    0 forward, b0 backward, w0 weight gradients of micro-batch 0  . idle
    """
    behind = ranks - rank - 1
    early = tuple(range(max(0, min(2 * behind, micros - behind - 1))))
    for instruction in one_f_one_b(rank, ranks, micros, chunks):
        yield instruction
        if early and instruction == Forward(micros - 1):
            yield Weight(early)
    yield Weight(tuple(range(len(early), micros)))


def with_weights_batched(order: Order, every: int | None = None) -> Order:
    """An order of full backwards with the weight gradients of ``every`` micro-batches as one product.

    None: of all of them. A product over many samples is faster than as many products over few, and there is
    one sum to add to the gradient instead of one for each micro-batch.
    """
    if every is not None:
        at_least_one("every", every)

    def batched(rank: int, ranks: int, micros: int, chunks: int) -> Iterator[Instruction]:
        return with_weights(order(rank, ranks, micros, chunks), every=micros if every is None else every)

    return batched


def with_weights(
    instructions: Iterable[Instruction], *, behind: int = 0, every: int = 1
) -> Iterator[Instruction]:
    """Add a ``Weight`` after every ``every`` backwards of a chunk, delayed by ``behind`` backwards."""
    waiting: defaultdict[int, list[int]] = defaultdict(list)
    for instruction in instructions:
        yield instruction
        if isinstance(instruction, Backward):
            micros = waiting[instruction.chunk]
            micros.append(instruction.micro)
            if len(micros) == behind + every:
                yield Weight(tuple(micros[:every]), instruction.chunk)
                del micros[:every]
    for chunk, micros in waiting.items():
        for first in range(0, len(micros), every):
            yield Weight(tuple(micros[first : first + every]), chunk)


SCHEDULES = (
    Schedule(zb_h1, most_in_flight=lambda rank, n: min(n.micros, n.ranks)),
    Schedule(zb_h2, most_in_flight=lambda rank, n: min(n.micros, 2 * n.ranks - 1)),
    Schedule(with_weights_batched(gpipe), "gpipe-batched", most_in_flight=lambda rank, n: n.micros),
    Schedule(
        with_weights_batched(one_f_one_b, 2),
        "1f1b-pairs",
        most_in_flight=lambda rank, n: min(n.micros, n.ranks - rank + 1),
    ),
    Schedule(with_weights_batched(one_f_one_b), "1f1b-batched", most_in_flight=lambda rank, n: n.micros),
    Schedule(zb_batched, most_in_flight=lambda rank, n: n.micros),
)
