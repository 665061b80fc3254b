"""A loss is shown to be a mean over samples, by which backends weight the parts of a batch.

Lecture section: synchronous data parallelism.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from . import ops
from .bfloat16 import bfloat16
from .tape import no_grad
from .tensor import Tensor
from .weighted_mean import WeightedMean
from .work import Loss

TOLERANCE = 1e-6  # in float64, where sums of a million terms are equal to 1e-10


class MeanCheck:
    """Gives a training's loss for parts of a batch, once it has shown that it is a mean over samples.

    The first loss whose output has a row for each of several samples is compared with those of two parts of
    the samples, weighted by these, in float64 and outside of the tape. Raises ValueError where they differ,
    unless the loss of the same samples differs too, as with random numbers.
    """

    done = False

    def loss_of_parts(self, loss_fn: Loss, y: Any, *, several: bool) -> Loss:
        """``loss_fn`` for a part of a batch with targets ``y``, which may be one of ``several``."""
        if isinstance(loss_fn, WeightedMean):
            return loss_fn.for_parts_of(y)
        must_check = several and not self.done and loss_fn is not ops.cross_entropy
        return partial(self.checked, loss_fn) if must_check else loss_fn

    def checked(self, loss_fn: Loss, out: Tensor, y: Any) -> Tensor:
        """The loss of these samples, which is checked the first time."""
        loss = loss_fn(out, y)
        if not self.done and isinstance(out, Tensor) and out.ndim and len(out) == len(y) > 1:
            self.check(loss_fn, out.data.astype(np.float64), y)
        return loss

    def check(self, loss_fn: Loss, out: Any, y: Any) -> None:
        """Compare the loss of all samples with those of the first and the last ones."""

        def loss_of(rows: slice) -> float:
            return float(loss_fn(Tensor(out[rows]), y[rows]))

        n = len(y)
        try:
            with bfloat16(on=False), no_grad(), np.errstate(all="ignore"):
                whole = loss_of(slice(None))
                cuts = {n // 2, -(-n // 4)}
                pairs = [(cut, loss_of(slice(cut)), loss_of(slice(cut, None))) for cut in cuts]
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
