"""A loss of tokens that ranks share, which is shown to be a sum over tokens.

Lecture section: sequence parallelism. Lesson: 17_sequences, by ``sequence_parallel.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minigrad.bfloat16 import bfloat16
from minigrad.device import Array
from minigrad.mean_check import TOLERANCE
from minigrad.nn import CrossEntropyLoss
from minigrad.tape import no_grad
from minigrad.tensor import Tensor
from minigrad.weighted_mean import PartOfMean, WeightedMean


class PartsOfRows(WeightedMean):
    """``loss``, of which a part of a batch may have a part of each row; also a mean over samples becomes one
    of all ranks' tokens.

    The first total of rows with several tokens is compared with those of the first tokens and of the others,
    in float64 and outside of the tape; ValueError where it is not their sum.
    """

    def __init__(self, loss: WeightedMean):
        super().__init__(self.checked_total, loss.divisor)
        self.loss, self.done = loss, isinstance(loss, CrossEntropyLoss)

    def for_parts_of(self, y: Any) -> Callable[[Tensor, Any], Tensor]:
        return PartOfMean(self.loss if self.done else self, self.divisor(y) / len(y))

    def checked_total(self, out: Tensor, y: Any) -> Tensor:
        """The total of these tokens, which is checked the first time."""
        if not self.done and out.size and out.shape[1] > 1:
            self.check(out.data.astype(np.float64), y)
        return self.loss.total(out, y)

    def check(self, out: Array, y: Any) -> None:
        """Compare the total of all tokens with that of two parts."""
        with bfloat16(on=False), no_grad(), np.errstate(invalid="ignore"):
            whole, again = (float(self.loss.total(Tensor(out), y)) for _ in range(2))
            middle = out.shape[1] // 2
            cuts = slice(middle), slice(middle, None)
            parts = [float(self.loss.total(Tensor(out[:, cut]), y[:, cut])) for cut in cuts]
        self.done = True
        scale = max(map(abs, [whole, *parts]))
        if np.isfinite(whole) and whole == again and not abs(whole - sum(parts)) <= TOLERANCE * scale:
            raise ValueError(
                f"the total over tokens is {whole:.6g}, but {sum(parts):.6g} by those of the first {middle} "
                "and of the others: it is no sum over tokens, which ranks of --sequence share; sum over "
                "them, or leave the sequence axis out"
            )
