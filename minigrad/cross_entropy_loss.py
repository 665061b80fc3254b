"""Cross-entropy with settings, as a loss function for any backend.

Lecture section: synchronous data parallelism. Lesson: 02_backpropagation, by ``nn/__init__.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import ops
from .device import array_module
from .lookup import check_choice
from .tensor import Tensor
from .weighted_mean import WeightedMean


class CrossEntropyLoss(WeightedMean):
    """``ops.cross_entropy`` with its settings: a loss on which every backend trains as Serial does.

    Where a batch is split, the losses of all parts are divided by the divisor of the whole batch: with
    ``weight`` or ``ignore_index`` the sum of its labels' factors. Raises ValueError for another reduction
    than "mean" and "sum". A captured step takes it with weights on the GPU.
    """

    def __init__(
        self,
        *,
        weight: Any = None,
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
        reduction: str = "mean",
    ):
        check_choice("reduction", reduction, ("mean", "sum"))
        self.weight, self.ignore_index, self.reduction = weight, ignore_index, reduction
        self.settings = {"weight": weight, "ignore_index": ignore_index, "label_smoothing": label_smoothing}
        super().__init__(self.sum, self.total_factor)

    def __call__(self, out: Any, y: Any) -> Tensor:
        return ops.cross_entropy(out, y, **self.settings, reduction=self.reduction)

    def sum(self, logits: Any, labels: Any) -> Tensor:
        """The sum of the losses of all rows."""
        return ops.cross_entropy(logits, labels, **self.settings, reduction="none").sum()

    def total_factor(self, labels: Any) -> Any:
        """What the sum is divided by, for integer labels."""
        if self.reduction == "sum":
            return 1
        labels = Tensor(labels).data
        counted = labels == labels if self.ignore_index is None else labels != self.ignore_index
        if self.weight is None:
            return counted.sum()
        weight = array_module(labels).asarray(Tensor(self.weight).data)
        return (weight[labels * counted] * counted).sum()

    def for_parts_of(self, y: Any) -> Callable[[Tensor, Any], Tensor]:
        """Where it is a mean over samples the loss itself: the op, where there are no settings."""
        no_factors = (self.weight is None and self.ignore_index is None) or Tensor(y).dtype.kind == "f"
        if self.reduction == "sum" or not no_factors:
            return super().for_parts_of(y)
        plain = self.weight is None and not self.settings["label_smoothing"]
        return ops.cross_entropy if plain else self
