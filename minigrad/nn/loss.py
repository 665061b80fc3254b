"""Losses of outputs and targets of one shape, with settings, as loss functions for any backend.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``nn/__init__.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from .. import ops
from ..keyword_settings import positions_and_settings
from ..lookup import check_choice
from ..tensor import Tensor
from ..weighted_mean import WeightedMean


class ElementLoss(WeightedMean):
    """A loss with a term for each element, the ``op`` with its settings, on which every backend trains alike.

    The ``reduction`` is "mean", over all elements, or "sum", over those of the whole batch also where ranks
    share it. Raises ValueError for another one, TypeError for a setting that the op has not, and as the op.

    >>> from minigrad import nn
    >>> nn.MSELoss(reduction="sum")([1.0, 2.0], [0.0, 4.0]).item()
    5.0
    """

    op: ClassVar[Callable[..., Tensor]]

    def __init__(self, *, reduction: str = "mean", **settings: Any):
        check_choice("reduction", reduction, ("mean", "sum"))
        _, names = positions_and_settings(type(self).op)
        if unknown := settings.keys() - set(names):
            takes = ", ".join(f"{name}=" for name in names)
            raise TypeError(f"{type(self).__name__} takes {takes} and not {', '.join(sorted(unknown))}")
        self.reduction, self.settings = reduction, settings
        super().__init__(lambda out, y: type(self).op(out, y, reduction="none", **settings).sum(), self.count)

    def __repr__(self) -> str:
        settings = {"reduction": self.reduction, **self.settings}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in settings.items())})"

    def __call__(self, out: Any, y: Any) -> Tensor:
        return type(self).op(out, y, reduction=self.reduction, **self.settings)

    def count(self, y: Any) -> int:
        """What the sum is divided by."""
        return 1 if self.reduction == "sum" else max(int(np.prod(np.shape(y))), 1)

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
