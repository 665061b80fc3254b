"""Losses with settings, as loss functions for any backend.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``nn/__init__.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from .. import ops
from ..device import array_module
from ..keyword_settings import positions_and_settings
from ..lookup import check_choice
from ..settings_repr import settings_repr
from ..tensor import Tensor
from ..weighted_mean import WeightedMean


class OpLoss(WeightedMean):
    """A loss that the ``op`` of its class computes with ``settings``, on which every backend trains alike.

    The ``reduction`` is "mean" or "sum", of the whole batch also where ranks share it; else ValueError.
    """

    op: ClassVar[Callable[..., Tensor]]

    def __init__(self, reduction: str, settings: dict[str, Any]):
        check_choice("reduction", reduction, ("mean", "sum"))
        self.reduction, self.settings = reduction, settings
        super().__init__(self.sum, self.count)

    def __call__(self, out: Any, y: Any) -> Tensor:
        return type(self).op(*self.rows(out, y), **self.settings, reduction=self.reduction)

    def sum(self, out: Any, y: Any) -> Tensor:
        """The sum of all terms."""
        return type(self).op(*self.rows(out, y), **self.settings, reduction="none").sum()

    def rows(self, out: Any, y: Any) -> tuple[Any, Any]:
        """Output and targets as the op takes them."""
        return out, y

    def count(self, y: Any) -> Any:
        """What the sum is divided by: here the number of elements."""
        return 1 if self.reduction == "sum" else max(int(np.prod(np.shape(y))), 1)


class ElementLoss(OpLoss):
    """A loss with a term for each element of outputs and targets of one shape; "mean" is over all elements.

    Raises TypeError for a setting that the op has not, and otherwise as the op.

    >>> from minigrad import nn
    >>> nn.MSELoss(reduction="sum")([1.0, 2.0], [0.0, 4.0]).item()
    5.0
    """

    def __init__(self, *, reduction: str = "mean", **settings: Any):
        super().__init__(reduction, settings)
        _, names = positions_and_settings(type(self).op)
        if unknown := settings.keys() - set(names):
            takes = ", ".join(f"{name}=" for name in names)
            raise TypeError(f"{type(self).__name__} takes {takes} and not {', '.join(sorted(unknown))}")

    def __repr__(self) -> str:
        settings = {"reduction": self.reduction, **self.settings}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in settings.items())})"

    def for_parts_of(self, y: Any) -> Callable[[Tensor, Any], Tensor]:
        """The loss itself where it is a mean over elements, which is one over samples."""
        return self if self.reduction == "mean" else super().for_parts_of(y)


class MSELoss(ElementLoss):
    """``ops.mse``: the mean of (x - y) ** 2."""

    op = staticmethod(ops.mse)


class L1Loss(ElementLoss):
    """``ops.l1_loss``: the mean of |x - y|."""

    op = staticmethod(ops.l1_loss)


class HuberLoss(ElementLoss):
    """``ops.huber_loss``, quadratic up to ``delta=1.0``, then linear with this slope."""

    op = staticmethod(ops.huber_loss)


class SmoothL1Loss(ElementLoss):
    """``ops.smooth_l1_loss``, quadratic up to ``beta=1.0``, then linear with slope 1."""

    op = staticmethod(ops.smooth_l1_loss)


class BCEWithLogitsLoss(ElementLoss):
    """``ops.binary_cross_entropy_with_logits``, whose weights broadcast to the logits of a sample."""

    op = staticmethod(ops.binary_cross_entropy_with_logits)


class CrossEntropyLoss(OpLoss):
    """``ops.cross_entropy`` with its settings: a loss on which every backend trains as Serial does.

    Where a batch is split, the losses of all parts are divided by the divisor of the whole batch: with
    ``weight`` or ``ignore_index`` the sum of its labels' factors. ``class_axis`` is the axis of the logits
    with the classes: 1, as in the op, or -1 for the tokens of sequences, logits (N, S, classes) and labels
    (N, S). Raises ValueError for another one, and for another reduction than "mean" and "sum". A captured
    step takes it with weights on the GPU.
    """

    op = staticmethod(ops.cross_entropy)
    __repr__ = settings_repr

    def __init__(
        self,
        *,
        weight: Any = None,
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
        reduction: str = "mean",
        class_axis: int = 1,
    ):
        if class_axis not in (1, -1):
            raise ValueError(f"class_axis must be 1 or -1, got {class_axis}; transpose the logits")
        self.weight, self.ignore_index, self.class_axis = weight, ignore_index, class_axis
        settings = {"weight": weight, "ignore_index": ignore_index, "label_smoothing": label_smoothing}
        super().__init__(reduction, settings)

    def rows(self, out: Any, y: Any) -> tuple[Any, Any]:
        """Logits and labels as the op takes them: tokens, where these have the classes last, as rows."""
        shape = np.shape(out)
        if self.class_axis == 1 or len(shape) < 3:
            return out, y
        labels = Tensor(y).data
        n = math.prod(shape[:-1])
        soft = labels.shape == shape and labels.dtype.kind == "f"
        if not soft and labels.shape != shape[:-1]:
            raise ValueError(
                f"logits {shape} with the classes last need labels {shape[:-1]}, got {labels.shape}"
            )
        return ops.reshape(out, shape=(n, shape[-1])), labels.reshape((n, shape[-1]) if soft else n)

    def count(self, y: Any) -> Any:
        """What the sum is divided by; for labels that are probabilities of classes the number of rows."""
        if self.reduction == "sum":
            return 1
        labels = Tensor(y).data
        if labels.dtype.kind == "f":
            return labels.size // labels.shape[self.class_axis]
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
        plain = self.weight is None and not self.settings.get("label_smoothing") and self.class_axis == 1
        return type(self).op if plain else self


class NLLLoss(CrossEntropyLoss):
    """``ops.nll_loss``: the cross-entropy of log-probabilities, such as ``ops.log_softmax`` gives."""

    op = staticmethod(ops.nll_loss)

    def __init__(self, **settings: Any):
        super().__init__(**settings)
        if self.settings.pop("label_smoothing"):
            raise TypeError("an NLLLoss has no label_smoothing; take CrossEntropyLoss, which takes logits")
