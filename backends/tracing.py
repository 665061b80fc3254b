"""The steps of a training run in its trace."""

from __future__ import annotations

from bisect import bisect_right

from .comm.timeline import kind
from .comm.trace import Span, Trace


def steps_of(trace: Trace) -> list[Trace]:
    """The training steps: each rank's spans from its first forward to the end of its update.

    A trace without updates, such as that of a plan, is one step. The ledgers are those of the whole run.
    """
    steps: dict[int, list[Span]] = {}
    for rank in range(trace.size):
        spans = sorted((s for s in trace.spans if s.rank == rank), key=lambda s: s.start)
        ends = sorted(s.stop for s in spans if s.what == "update")
        training: set[int] = set()  # the steps with a forward
        for span in spans:
            step = bisect_right(ends, span.start)
            if kind(span.what) == "forward":
                training.add(step)
            if step in training:
                steps.setdefault(step, []).append(span)
    return [Trace(tuple(steps[step]), trace.ledgers, trace.clock_error) for step in sorted(steps)]
