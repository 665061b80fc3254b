"""Gradients of several parameters in one message.

Lecture section: synchronous data parallelism. Lesson: 06_data_parallel, by ``data_parallel.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from minigrad.device import Array, unflatten
from minigrad.tensor import Tensor

from .step_summary import StepSummary


class Bucket:
    """The gradients of some parameters, end to end in one ``message``, which may have more elements.

    ``missing`` are the parameters whose gradient of this step is not in it.
    """

    def __init__(self, parameters: Sequence[Tensor], message: Array):
        self.message = message
        self.views: dict[Any, Array] = dict(zip(parameters, unflatten(message, parameters), strict=True))
        self.missing = set(parameters)

    def fill(self, parameters: Iterable[Tensor]) -> None:
        """Copy gradients into the message, zeros for None; the next backward may write them there itself."""
        for parameter in list(parameters):
            view = self.views[parameter]
            if parameter.grad is None:
                view[...] = 0
            elif parameter.grad is not view:
                view[...] = parameter.grad
            parameter.grad_buffer = view
            self.missing.discard(parameter)


def make_buckets(
    groups: Sequence[Sequence[Tensor]], summary: StepSummary, allocate: Callable[[int, Any], Array]
) -> list[Bucket]:
    """A bucket for each group of parameters of one dtype; the last one carries the ``summary`` too.

    Gradients of float16 travel apart from the summary, which has float32: its bucket has no parameter then.
    ``allocate`` makes the messages, from a size and a dtype.
    """
    *others, last = groups if groups[-1][0].dtype == summary.dtype else [*groups, []]
    made = [Bucket(group, allocate(sum(p.size for p in group), group[0].dtype)) for group in others]
    return [*made, Bucket(last, allocate(sum(p.size for p in last) + len(summary), summary.dtype))]
