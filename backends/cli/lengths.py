"""How long a training is: it may go on longer than planned, and then its rate follows a longer schedule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minigrad.lr_schedules import Schedule

from ..words import counted


class Lengths:
    """How many steps a training has in all, from which step on; ValueError where more steps were taken."""

    def __init__(self, facts: dict[str, Any], taken: int, epochs: int, epoch_steps: int):
        before = facts.get("lengths") or [[0, epoch_steps * facts["config"]["epochs"]]] if facts else []
        self.parts: list[list[int]] = [[start, steps] for start, steps in before]
        self.taken, self.steps = taken, epochs * epoch_steps
        if taken > self.steps:
            raise ValueError(
                f"the checkpoint holds {counted(taken, 'step')}, and --epochs {epochs} has {self.steps}; "
                f"pass --epochs {-(-taken // epoch_steps)} or more"
            )
        self.is_new = bool(before) and self.steps != self.parts[-1][1]
        if self.is_new or not before:
            self.parts.append([taken, self.steps])

    def rate(self, schedule_of: Callable[[int], Schedule]) -> Schedule:
        """The rate of each step by the schedule, of so many steps, that was followed at that step."""
        parts = [(start, schedule_of(steps)) for start, steps in reversed(self.parts)]
        return lambda step: next(schedule for start, schedule in parts if start <= step)(step)

    def notes(self, name: str, schedule_of: Callable[[int], Schedule]) -> list[str]:
        """What the training does that a user may not expect, a sentence each."""
        if self.is_new:
            before, now = (schedule_of(steps)(self.taken) for _, steps in self.parts[-2:])
            rates = f"goes on at {now:.3g}" if now == before else f"is {now:.3g}, not {before:.3g},"
            return [
                f"note: the training has {self.steps} steps, not {self.parts[-2][1]}; by the schedule "
                f"{name} over all of them the learning rate {rates} after step {self.taken}"
            ]
        if self.taken == self.steps:
            return [f"note: all {self.steps} steps were taken before; a larger --epochs goes on"]
        return []
