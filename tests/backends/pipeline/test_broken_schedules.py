"""Laws of backends/pipeline/schedules.py: each bug in the order of a schedule turns the law
red that is there for it.
"""

import pytest

from backends.pipeline.schedule import Schedule
from backends.pipeline.simulation import Stuck
from tests.backends.pipeline import schedule_laws as laws
from tests.bugs.mutant import mutant

ONE, ZERO, TWO, VEE = (
    f"backends.pipeline.{module}" for module in ("unidirectional", "zero_bubble", "bidirectional", "v_shaped")
)


def in_unit_time(schedule: Schedule, p: int, m: int, v: int) -> None:
    laws.takes_as_long(schedule, p, m, v, 1, 1, 1)


BUGS = {
    "gpipe leaves the last micro-batch forward": (
        ONE, "gpipe", laws.everything_once,
        "yield from map(Backward, range(micros))", "yield from map(Backward, range(micros - 1))",
    ),
    "the warm-up is one short": (
        ONE, "1f1b", in_unit_time, "ahead=ranks - rank - 1)", "ahead=max(0, ranks - rank - 2))",
    ),
    "the warm-up is one long": (
        ONE, "1f1b", laws.memory_as_promised, "ahead=ranks - rank - 1)", "ahead=ranks - rank)",
    ),
    "a backward before the forward that its turn begins with": (
        ONE, "1f1b", laws.everything_once,
        "yield from islice(rest, 1)\n        yield backward",
        "yield backward\n        yield from islice(rest, 1)",
    ),
    "chunks go back in the order in which they went forward": (
        ONE, "interleaved", laws.everything_once,
        "Backward(micro, chunks - 1 - chunk)", "Backward(micro, chunk)",
    ),
    "all micro-batches pass a chunk before the next": (
        ONE, "interleaved", laws.everything_once,
        "for first in range(0, micros, ranks)\n        for chunk in range(chunks)",
        "for chunk in range(chunks)\n        for first in range(0, micros, ranks)",
    ),
    "the warm-up of the other chunks is forgotten": (
        ONE, "interleaved", laws.everything_once, " + (chunks - 1) * ranks)", ")",
    ),
    "the warm-up is that of 1f1b": (
        ONE, "interleaved", laws.hides_messages, "ahead=2 * (ranks - rank - 1)", "ahead=(ranks - rank - 1)",
    ),
    "weights too early": (ZERO, "zb-h1", in_unit_time, "behind=rank)", "behind=0)"),
    "weights too late": (ZERO, "zb-h1", laws.memory_as_promised, "behind=rank)", "behind=ranks)"),
    "zb-h2 with the warm-up of zb-h1": (
        ZERO, "zb-h2", laws.never_waits, "ahead = 2 * (ranks - rank - 1)", "ahead = ranks - rank - 1",
    ),
    "zb-h2 with the weights of zb-h1": (ZERO, "zb-h2", laws.never_waits, "behind=2 * rank", "behind=rank"),
    "weights computed twice": (
        ZERO, "1f1b-pairs", laws.everything_once, "del micros[:every]", "del micros[: every - 1]",
    ),
    "weights before their backward": (
        ZERO, "zb-h1", laws.everything_once,
        "        yield instruction\n        if isinstance(instruction, Backward):\n",
        "        if not isinstance(instruction, Backward):\n            yield instruction\n        else:\n",
        "                del micros[:every]\n",
        "                del micros[:every]\n            yield instruction\n",
    ),
    "the second unit enters before there is room": (
        TWO, "chimera", laws.everything_once, "entry = 2 * ranks * unit", "entry = ranks * unit",
    ),
    "the second direction is not mirrored": (
        TWO, "chimera", laws.everything_once, "stage = ranks - 1 - rank if chunk else rank", "stage = rank",
    ),
    "the second unit waits for the first to end": (
        TWO, "chimera", laws.two_directions_take, "entry = 2 * ranks * unit", "entry = 3 * ranks * unit",
    ),
    "one slot between two micro-batches is missing": (
        TWO, "chimera", laws.everything_once, "2 * (micro % ranks // 2)", "(micro % ranks // 2)",
    ),
    "a backward before the forward that it runs beside": (
        TWO, "dualpipe", laws.eight_steps_take, '"F0 B1 F1 B0"', '"B1 F0 B0 F1"',
    ),
    "the same weights again and again": (TWO, "dualpipe", laws.everything_once, ".pop(place)", "[place]"),
    "the last weights are computed in a full backward": (
        TWO, "dualpipe", laws.eight_steps_take, '(inner + 1, "W")', '(inner, "W")',
    ),
    "a forward less ahead": (
        TWO, "dualpipe", laws.everything_once, '(2 * outer, "F0")', '(2 * outer - 1, "F0")',
    ),
    "zb-v with one micro-batch less ahead": (
        VEE, "zb-v", laws.everything_once, '(2 * behind - 1, "F0")', '(2 * behind - 2, "F0")',
    ),
    "zb-v with its weights at the end": (
        VEE, "zb-v", laws.memory_as_promised, '"F0 b0 W0 F1 b1 W1"', '"F0 b0 F1 b1"',
        '(rank, "W1")', '(most - 2 * behind + 1, "W1")',
        '(rank, "W0")', '(most - 2 * behind + 1, "W0")',
    ),
    "zb-v that takes the way up first": (
        VEE, "zb-v", laws.v_never_waits, '"F0 b0 W0 F1 b1 W1"', '"F1 b1 W1 F0 b0 W0"',
    ),
    "dualpipe-v on the wrong side of the middle": (
        VEE, "dualpipe-v", laws.half_of_dualpipe, "eight_steps(rank, ranks - 1 - rank,",
        "eight_steps(ranks - 1 - rank, rank,",
    ),
}  # fmt: skip


@pytest.mark.parametrize("bug", BUGS)
def test_every_law_finds_its_bug(bug):
    module, name, law, *texts = BUGS[bug]
    changed = mutant(module, *zip(texts[::2], texts[1::2], strict=True))
    broken = next(schedule for schedule in changed.SCHEDULES if schedule.name == name)
    with pytest.raises((AssertionError, Stuck)):
        for p, m, v in laws.NUMBERS[name]:
            if law is not laws.never_waits or m >= 2 * p - 1:
                law(broken, p, m, v)
