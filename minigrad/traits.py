"""What a strategy promises and needs: commands, checkpoints and a Stack ask before the first step.

Lecture section: synchronous data parallelism. Lesson: 06_data_parallel, by ``backend.py``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True)
class Traits:
    """A strategy's traits; each default is that of serial training."""

    equals_serial: bool = True
    """By mathematics; False, as for averaged models: there is nothing to prove."""
    resumable: bool = True
    """False where ranks may leave: all of them write a checkpoint."""
    depends_on_timing: bool = False
    """A rank's samples depend on how fast it is."""
    models_differ: bool = False
    """Between steps the models of the ranks differ, and so do the states of their optimizers."""
    same_layout_only: bool = False
    """Training continues only on as many ranks, each of which needs its ``own_state``."""
    may_lag: bool = False
    """A rank may be steps behind the others; all are at one step when they drain."""
    outermost_only: bool = False
    """The strategy updates parameters in its own way."""
    splits_layers: bool = False
    """Ranks share the work inside layers."""
    communicates_in_forward: bool = False
    """So a rank without samples must take its pass, too."""
    applies_momentum: bool = False
    """The strategy applies momentum itself; the optimizer must have none."""
    recovers: bool = False
    """When a rank dies, the others continue on a communicator without it."""

    @classmethod
    def of_all(cls, members: Iterable[Traits]) -> Self:
        """The traits of strategies that work together: where one departs from serial training, all do."""
        traits = [vars(member) for member in members]
        serial = vars(cls())
        return cls(**{k: (all if serial[k] else any)(some[k] for some in traits) for k in serial})
