"""Dropout, whose masks do not depend on ranks.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``nn/__init__.py``.
"""

from __future__ import annotations

from typing import Any

from .. import ops
from ..forward_pass import current_pass
from ..module import Module
from ..ops.dropout import check_probability
from ..own_state import OwnState
from ..random_mask import Mask, RandomMask
from ..tensor import Tensor
from .init import Rng, generator


class Dropout(Module, OwnState):
    """Zeroes each element with probability ``p`` in training mode; in eval mode, or with p = 0, it is x.

    The masks of a training step depend on the layer's ``seed``, drawn from ``rng``, on its position, the step
    and the place of each sample in the whole batch: not on ranks, micro-batches or a second run. Outside of
    a step each call has a new mask. Raises ValueError for p outside of 0 <= p < 1, and in a step for an input
    whose first axis is no multiple of the samples.

    >>> from minigrad import nn
    >>> nn.Dropout(0.5, rng=0).eval()([1.0, 2.0]).data.tolist()
    [1.0, 2.0]
    """

    token_wise = True

    own_state = ("calls",)

    def __init__(self, p: float = 0.5, *, rng: Rng | int | None = None):
        check_probability(p)
        self.p, self.seed = p, int(generator(self, rng).integers(1 << 63))
        self.calls = 0  # outside of steps

    @property
    def drops(self) -> bool:
        """Whether it does anything now: a mask of ones would be drawn and held for nothing."""
        return self.training and self.p > 0

    def forward(self, x: Any) -> Tensor:
        if not self.drops:
            return x if isinstance(x, Tensor) else Tensor(x)
        return ops.dropout(x, p=self.p, rng=self.next_mask())

    def next_mask(self) -> Mask:
        """The mask of this call."""
        current = current_pass.get()
        if current is not None and current.step is not None:
            return current.mask(self.seed)
        self.calls += 1
        return RandomMask(self.seed, step=self.calls)

    def describe(self) -> str:
        return str(self.p)
