"""Bugs in the orders of schedules: each turns the law red that is there for it."""

import pytest

from backends.pipeline.schedule import Schedule
from backends.pipeline.simulate import Stuck
from tests.backends.schedule_laws import (
    NUMBERS, eight_steps_take, everything_once, hides_messages, memory_as_promised, never_waits, takes_as_long,
    two_directions_take,
)  # fmt: skip
from tests.bugs.mutant import mutant

ONE, ZERO, TWO = (f"backends.pipeline.{module}" for module in ("one_way", "zero_bubble", "two_way"))
LIBRARY = {ONE: "ONE_WAY", ZERO: "ZERO_BUBBLE", TWO: "TWO_WAY"}


def in_unit_time(schedule: Schedule, p: int, m: int, v: int) -> None:
    takes_as_long(schedule, p, m, v, 1, 1, 1)


BUGS = {
    "gpipe leaves the last micro-batch forward": (
        ONE, "gpipe", everything_once,
        "yield from map(Backward, range(micros))", "yield from map(Backward, range(micros - 1))",
    ),
    "the warm-up is one short": (
        ONE, "1f1b", in_unit_time, "ahead=ranks - rank - 1)", "ahead=max(0, ranks - rank - 2))",
    ),
    "the warm-up is one long": (
        ONE, "1f1b", memory_as_promised, "ahead=ranks - rank - 1)", "ahead=ranks - rank)",
    ),
    "a backward before the forward that its turn begins with": (
        ONE, "1f1b", everything_once,
        "yield from islice(coming, 1)\n        yield backward",
        "yield backward\n        yield from islice(coming, 1)",
    ),
    "chunks go back in the order in which they went forward": (
        ONE, "interleaved", everything_once, "Backward(micro, chunks - 1 - chunk)", "Backward(micro, chunk)",
    ),
    "all micro-batches pass a chunk before the next": (
        ONE, "interleaved", in_unit_time,
        "for first in range(0, micros, ranks)\n        for chunk in range(chunks)",
        "for chunk in range(chunks)\n        for first in range(0, micros, ranks)",
    ),
    "the warm-up of the other chunks is forgotten": (
        ONE, "interleaved", everything_once, " + (chunks - 1) * ranks)", ")",
    ),
    "the warm-up is that of 1f1b": (
        ONE, "interleaved", hides_messages, "ahead=2 * (ranks - rank - 1)", "ahead=(ranks - rank - 1)",
    ),
    "weights too early": (ZERO, "zb-h1", in_unit_time, "behind=rank)", "behind=0)"),
    "weights too late": (ZERO, "zb-h1", memory_as_promised, "behind=rank)", "behind=ranks)"),
    "zb-h2 with the warm-up of zb-h1": (
        ZERO, "zb-h2", never_waits, "ahead = 2 * (ranks - rank - 1)", "ahead = ranks - rank - 1",
    ),
    "zb-h2 with the weights of zb-h1": (ZERO, "zb-h2", never_waits, "behind=2 * rank", "behind=rank"),
    "weights computed twice": (
        ZERO, "1f1b-pairs", everything_once, "del micros[:every]", "del micros[: every - 1]",
    ),
    "weights before their backward": (
        ZERO, "zb-h1", everything_once, "yield Weight(tuple(micros[:every])",
        "yield Weight(tuple(micro + behind + 1 for micro in micros[:every])",
    ),
    "the second unit enters before there is room": (
        TWO, "chimera", everything_once, "entry = 2 * ranks * unit", "entry = ranks * unit",
    ),
    "the second direction is not mirrored": (
        TWO, "chimera", everything_once, "stage = ranks - 1 - rank if chunk else rank", "stage = rank",
    ),
    "the second unit waits for the first to end": (
        TWO, "chimera", two_directions_take, "entry = 2 * ranks * unit", "entry = 3 * ranks * unit",
    ),
    "one slot between two micro-batches is missing": (
        TWO, "chimera", everything_once, "2 * (micro % ranks // 2)", "(micro % ranks // 2)",
    ),
    "a backward before the forward that it runs beside": (
        TWO, "dualpipe", eight_steps_take, '"F0 B1 F1 B0"', '"B1 F0 B0 F1"',
    ),
    "full backwards in the drain": (TWO, "dualpipe", everything_once, '"W b0"', '"W B0"'),
    "a forward less ahead": (
        TWO, "dualpipe", everything_once, '(2 * outer, "F0")', '(2 * outer - 1, "F0")',
    ),
}  # fmt: skip


@pytest.mark.parametrize("bug", BUGS)
def test_every_law_finds_its_bug(bug):
    module, name, law, right, wrong = BUGS[bug]
    broken = next(s for s in getattr(mutant(module, (right, wrong)), LIBRARY[module]) if s.name == name)
    with pytest.raises((AssertionError, Stuck, IndexError)):
        for p, m, v in NUMBERS[name]:
            if law is not never_waits or m >= 2 * p - 1:
                law(broken, p, m, v)
