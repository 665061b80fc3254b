"""Copies in float32 of parameters that have sixteen bits, which an optimizer updates in their place.

A step changes a weight by less than its last digit more often than not: 1 - 2^-12 is 1 in float16. So the
sum of all steps is kept in float32, and the parameters are this sum, rounded.
Lecture section: back-propagation. Lesson: 19_sixteen_bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from .bfloat16 import rounded
from .device import Array
from .lookup import check_choice
from .loss_scale import DynamicScale, StaticScale

if TYPE_CHECKING:
    from .optim import Optimizer, Part

PRECISIONS = ("float16", "bfloat16")


class MasterWeights:
    """The float32 copies that an optimizer keeps in its state, as ``master``, of parameters of 16 bits.

    ``precision`` is "float16", or "bfloat16" for float32 parameters that are rounded. Gradients are those of
    ``scale.value`` times the loss (Micikevicius et al. 2018). By default float16 has a DynamicScale, and
    bfloat16, whose exponents are those of float32, the scale 1. Raises ValueError for another precision.
    """

    def __init__(self, precision: str = "float16", scale: StaticScale | None = None):
        check_choice("precision", precision, names=PRECISIONS)
        self.precision = precision
        self.scale = scale or (DynamicScale() if precision == "float16" else StaticScale())

    def __repr__(self) -> str:
        return f"MasterWeights({self.precision!r}, {self.scale!r})"

    def check(self, optimizer: Optimizer) -> None:
        """Raise ValueError unless parameters, where the optimizer has any, are of this precision."""
        dtype = np.float16 if self.precision == "float16" else np.float32
        if optimizer.parameters and not any(p.dtype == dtype for p in optimizer.parameters):
            raise ValueError(
                f"master weights take {self.precision} parameters, and got {optimizer.parameters[0].dtype}; "
                f'convert them before, with model.to(dtype="{self.precision}")'
            )

    def check_gradients(self, strategy: str, is_exact: bool, scale: float | None) -> None:
        """Raise ValueError for gradients of another scale (None: unknown), or of an inexact ``strategy``."""
        if not is_exact:
            raise ValueError(
                f"{strategy} does not train like a serial run, as master weights need; train in float32, or "
                "with an exact strategy"
            )
        if scale not in (None, self.scale.value):
            raise ValueError(
                f"the gradients are of {scale:g} times the loss, and the optimizer divides them by "
                f"{self.scale.value:g}; call backend.step(..., loss_scale=optimizer.loss_scale)"
            )

    def step(
        self, optimizer: Optimizer, parts: Iterable[Part], total: Callable[[np.ndarray], np.ndarray]
    ) -> None:
        """Update the copies by the gradients without their scale, and round them into the parameters.

        Where a gradient of any rank is not finite, which ``total`` tells all ranks alike, nothing is updated.
        """
        parts = list(parts)  # on a rank that owns some elements fewer than there are parameters, or more
        optimizer.state.extend({} for _ in range(len(parts) - len(optimizer.state)))
        copies = [
            part if part.g is None else part._replace(w=self.copy(part.w, state), g=self.unscaled(part.g))
            for part, state in zip(parts, optimizer.state, strict=False)
        ]
        with np.errstate(over="ignore", invalid="ignore"):  # ranks take 0 times what others have, too
            finite = np.isfinite(total(optimizer.squares(copies))).all()
        if not finite:
            self.scale.skip_step()
            return
        self.scale.take_step()
        optimizer.apply(optimizer.updates(copies, total))
        for part, copy, state in zip(parts, copies, optimizer.state, strict=False):
            if part.g is not None:
                state["master"] = copy.w
                part.w[...] = rounded(copy.w) if self.precision == "bfloat16" else copy.w

    def copy(self, w: Array, state: dict[str, Any]) -> Array:
        """The float32 copy of a parameter's elements ``w``: that of the ``state``, or at first a new one."""
        return state["master"] if "master" in state else w.astype(np.float32)

    def unscaled(self, g: Array) -> Array:
        """The gradient of the loss itself, in float32."""
        d = g.astype(np.float32)  # a copy, which clipping may write into
        d /= np.float32(self.scale.value)
        return d
