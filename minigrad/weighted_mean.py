"""A loss that is divided by something else than the number of samples, for parts of a batch as for the whole.

Lecture section: synchronous data parallelism. Lesson: 02_backpropagation, by ``nn/loss.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .device import array_module, on_gpu
from .forward_pass import check_whole_batch
from .tensor import Tensor


class WeightedMean:
    """The loss ``total(out, y) / divisor(y)``, which every strategy trains on as one machine does.

    Both are sums over samples, and where ranks share the tokens of rows, over tokens. ``divisor`` sees the
    targets alone: every rank has those of the whole batch, so that no rank must ask another. A plain function
    that divides by something else than the number of its samples would be wrong for parts of a batch, which a
    backend weights by their samples. Called with a part this one raises ValueError.

    >>> masked = WeightedMean(lambda out, y: ((out - y) ** 2 * (y >= 0)).sum(), lambda y: (y >= 0).sum())
    """

    def __init__(self, total: Callable[[Tensor, Any], Tensor], divisor: Callable[[Any], Any]):
        self.total, self.divisor = total, divisor

    def __call__(self, out: Any, y: Any) -> Tensor:
        check_whole_batch(type(self).__name__)
        return divided(self.total(out, y), self.divisor(y))

    def for_parts_of(self, y: Any) -> Callable[[Tensor, Any], Tensor]:
        """The loss of parts of a batch with targets ``y``.

        The parts' losses, each times its share of the samples, add up to the loss of the batch.
        """
        return PartOfMean(self, self.divisor(y) / len(y))


class PartOfMean(NamedTuple):
    """The ``loss`` of a part of a batch, divided by the part's share of the batch's divisor."""

    loss: WeightedMean
    per_sample: Any

    def __call__(self, out: Tensor, y: Any) -> Tensor:
        return divided(self.loss.total(out, y), self.divisor(y))

    def divisor(self, y: Any) -> Any:
        """What the sum over a part with targets ``y`` is divided by."""
        return self.per_sample * len(y)


def divided(total: Tensor, divisor: Any) -> Tensor:
    """``total / divisor`` in the dtype of the total; the host waits for no GPU.

    Without anything to divide by, as where all labels are ignored, it is NaN and no gradient flows.
    """
    if not on_gpu(divisor):
        divisor = float(divisor)
        return total / divisor if divisor else total * 0.0 + np.nan
    xp = array_module(divisor)
    divisor = divisor.astype(total.dtype)
    factor, absent = (divisor != 0).astype(total.dtype), xp.where(divisor != 0, 0, xp.nan).astype(total.dtype)
    return total * factor / (divisor + (1 - factor)) + absent
