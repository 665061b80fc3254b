"""A factor of the loss that lifts small gradients into the range of float16.

Lecture section: back-propagation. Lesson: 19_sixteen_bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SMALLEST = 2.0**-24  # the least positive float16 number: a smaller factor leaves nothing of a gradient of 1


@dataclass
class StaticScale:
    """A factor that stays the same: backward starts from ``value`` times the loss.

    A step whose gradients overflow is left out; ``skipped`` counts these. ``good_steps`` were taken since the
    last one. Raises ValueError for a factor that is not positive and finite.
    """

    value: float = 1.0
    good_steps: int = 0
    skipped: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.value < float("inf"):
            raise ValueError(f"a loss scale must be positive and finite, got {self.value}")

    def own_values(self) -> dict[str, Any]:
        """The factor and the counts of steps, as a checkpoint holds them."""
        return {"value": self.value, "good_steps": self.good_steps, "skipped": self.skipped}

    def set_own_values(self, values: Mapping[str, Any]) -> None:
        """Go on from what ``own_values`` gave."""
        vars(self).update(values)

    def take_step(self) -> None:
        """Count a step whose gradients were all finite."""
        self.good_steps += 1

    def skip_step(self) -> None:
        """Count a step that is left out, because a gradient is infinite or no number."""
        self.good_steps = 0
        self.skipped += 1


@dataclass
class DynamicScale(StaticScale):
    """A factor that is halved where gradients overflow and doubled after 2,000 steps in which none did.

    It starts at 2^16 (Micikevicius et al. 2018, section 3.2; the numbers are those of PyTorch's GradScaler).
    ``growth_interval`` is the number of good steps before it doubles. Raises FloatingPointError where
    gradients overflow at any factor.
    """

    value: float = 2.0**16
    growth_interval: int = 2000

    def take_step(self) -> None:
        super().take_step()
        if self.good_steps == self.growth_interval:
            self.value *= 2
            self.good_steps = 0

    def skip_step(self) -> None:
        super().skip_step()
        self.value /= 2
        if self.value < SMALLEST:
            raise FloatingPointError(
                f"gradients are not finite after {self.skipped} steps that were left out, even with a loss "
                f"scale of {self.value:g}; try a smaller --lr"
            )
