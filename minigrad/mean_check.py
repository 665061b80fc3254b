"""A loss is shown to be a mean over samples, by which backends weight the parts of a batch.

Lecture section: synchronous data parallelism.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .tape import without_tape
from .tensor import Tensor

TOLERANCE = 1e-6  # in float64, where sums of a million terms are equal to 1e-10


class MeanCheck:
    """``loss_fn``, which once is called with two parts of the samples too, outside of the tape.

    The first call whose output has a row for each of several samples compares the loss of all with those of
    the parts, weighted by their samples, in float64. Raises ValueError where they differ, unless the loss of
    the same samples differs too, as with random numbers.
    """

    def __init__(self, loss_fn: Callable[[Tensor, Any], Tensor]):
        self.loss_fn, self.done = loss_fn, False

    def __call__(self, out: Tensor, y: Any) -> Tensor:
        loss = self.loss_fn(out, y)
        if not self.done and isinstance(out, Tensor) and out.ndim and len(out) == len(y) > 1:
            self.check(out.data.astype(np.float64), y)
        return loss

    def check(self, out: Any, y: Any) -> None:
        """Compare the loss of all samples with those of the first and the last ones."""

        def loss_of(rows: slice) -> float:
            return float(self.loss_fn(Tensor(out[rows]), y[rows]))

        n = len(y)
        try:
            with without_tape(), np.errstate(all="ignore"):
                whole = loss_of(slice(None))
                pairs = [
                    (cut, loss_of(slice(cut)), loss_of(slice(cut, None))) for cut in {n // 2, -(-n // 4)}
                ]
                again = loss_of(slice(None))
        except Exception:  # it cannot be told; the training says what is wrong with the loss, if anything is
            self.done = True
            return
        if not np.isfinite(whole):
            return
        self.done = True
        for cut, first, last in pairs if whole == again else ():
            mean = (cut * first + (n - cut) * last) / n
            if not abs(whole - mean) <= TOLERANCE * max(abs(whole), abs(first), abs(last)):
                raise ValueError(
                    f"the loss of {n} samples is {whole:.6g}, but {mean:.6g} by those of the first {cut} and "
                    f"the last {n - cut}: it is no mean over samples, and parts of a batch would train on "
                    "another one; take WeightedMean(total, divisor) of minigrad.weighted_mean"
                )
