"""Laws of lessons/minigrad_course/machines/prefetch.py, sharded_step.py and timed_weights.py: formulas are
steps of stage 3 of ZeRO.
"""

from collections.abc import Sequence

from minigrad_course.machines.prefetch import (
    least_seconds,
    most_held,
    one_ahead_seconds,
    passes_of,
    sequential_seconds,
    step_seconds,
)
from minigrad_course.machines.sharded_step import sharded_step

from backends.comm.collectives.link import Link

Layers = Sequence[tuple[int, int]]
"""Each layer's seconds to gather, and seconds of forward."""


def closed_forms_are_steps(layers: Layers) -> None:
    """Without prefetch and one pass ahead; with any prefetch a step lies between the two bounds."""
    passes = passes_of(layers)
    for prefetch, formula in ((0, sequential_seconds(passes)), (1, one_ahead_seconds(passes))):
        seconds = step_seconds(passes, prefetch)
        assert seconds == formula, f"prefetch {prefetch}: {seconds} s, by the formula {formula} s"
    for prefetch in range(len(passes) + 1):
        seconds, least, most = step_seconds(passes, prefetch), least_seconds(passes), step_seconds(passes, 0)
        assert least <= seconds <= most, f"prefetch {prefetch}: {seconds} s, bounds {least} and {most} s"


def stage_3_takes_as_long(layers: Layers, prefetch: int, ranks: int) -> None:
    """Seconds and numbers held of real ranks; one number of each of them is gathered in a second."""
    sizes = [ranks * gather for gather, _ in layers]
    forward = [seconds for _, seconds in layers]
    link = Link(0.0, 4.0 * (ranks - 1))
    step = sharded_step(list(zip(sizes, forward, strict=True)), prefetch, link, ranks)
    expected = step_seconds(passes_of(layers), prefetch)
    assert abs(step.seconds - expected) < 1e-6, f"a step takes {step.seconds:.3f} s, formula {expected} s"
    most = most_held(passes_of(layers), sizes, prefetch)
    assert step.most_held == most, f"a rank holds {step.most_held} numbers, by the formula {most}"
