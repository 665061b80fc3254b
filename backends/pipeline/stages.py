"""The layers and parameters of each rank of a pipeline; tied and copied ones are on several ranks.

Lecture section: pipelining. Lesson: 13_pipeline, by ``pipeline.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from itertools import pairwise

from minigrad.module import Sequential

from ..placement import Placeholder
from .timetable import Timetable


class StageMap:
    """The ranks and stages of a model's layers and parameters; stage s is layers bounds[s] to bounds[s + 1].

    A parameter is known by its serial name, a tied one by its first. Ranks, stages and layers are numbers.
    """

    def __init__(self, model: Sequential, table: Timetable, bounds: Sequence[int]):
        stages_on = [set(table.stages_of(rank).values()) for rank in range(table.ranks)]
        self.stage_of = [stage for stage, (a, b) in enumerate(pairwise(bounds)) for _ in range(a, b)]
        self.layers_on = [[i for i, s in enumerate(self.stage_of) if s in mine] for mine in stages_on]
        self.ranks_of = [[r for r, mine in enumerate(stages_on) if s in mine] for s in self.stage_of]
        self.serial: dict[str, str] = {}  # every name of a parameter or state array, and its first one
        self.used_in: dict[str, list[int]] = {}  # layers
        first: dict[int, str] = {}
        for i, layer in enumerate(model.layers):
            for name, owner, attribute in layer.named_arrays(f"{i}."):
                self.serial[name] = first.setdefault(id(getattr(owner, attribute)), name)
                self.used_in.setdefault(self.serial[name], []).append(i)
        self.ranks = {
            n: sorted({r for i in layers for r in self.ranks_of[i]}) for n, layers in self.used_in.items()
        }
        self.trained = {n: p.requires_grad for n, p in model.named_parameters().items()}
        stages = [self.stage_of[self.used_in[n][0]] for n, trained in self.trained.items() if trained]
        self.first = min(stages, default=table.stages)  # stage with parameters to train

    def on(self, rank: int) -> list[str]:
        """The parameters on a rank, in the order of its own model."""
        names = [n for name, n in self.serial.items() if int(name.split(".")[0]) in self.layers_on[rank]]
        return [n for n in dict.fromkeys(names) if n in self.trained]

    def in_several_stages(self) -> list[str]:
        """The parameters whose gradient is a sum over several stages or ranks."""
        stages = {n: {self.stage_of[i] for i in self.used_in[n]} for n in self.trained}
        return [n for n in self.trained if len(stages[n]) > 1 or len(self.ranks[n]) > 1]

    def groups(self) -> dict[tuple[int, ...], list[str]]:
        """The trained parameters that several ranks have, by these ranks."""
        groups: dict[tuple[int, ...], list[str]] = {}
        for name, trained in self.trained.items():
            if trained and len(self.ranks[name]) > 1:
                groups.setdefault(tuple(self.ranks[name]), []).append(name)
        return groups

    def refuse_copies(self) -> None:
        """Raise ValueError where several ranks would each change a copy of one serial state."""
        for name, ranks in self.ranks.items():
            if len(ranks) > 1 and name not in self.trained:
                raise ValueError(
                    f"{name} changes with every micro-batch, and would be on ranks "
                    f"{', '.join(map(str, ranks))}, each of which sees some of them; take a normalisation "
                    "without running statistics (LayerNorm), a frozen Parameter for a constant, or a "
                    "schedule and bounds that keep it on one rank, such as 1f1b"
                )


def keep_only(model: Sequential, layers: Sequence[int]) -> Sequential:
    """The model with these layers under their names; the others become placeholders."""
    part = copy(model)
    part.layers = [layer if i in layers else Placeholder() for i, layer in enumerate(model.layers)]  # pyright: ignore
    return part
