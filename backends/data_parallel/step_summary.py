"""What ranks tell one another beside gradients, in the same message: loss, reached parameters, statistics.

Lecture section: synchronous data parallelism. Lesson: 06_data_parallel.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from minigrad.device import Array, array_module
from minigrad.module import Module
from minigrad.tensor import Parameter, Tensor


def trained(model: Module) -> list[Parameter]:
    """The parameters that gradients are exchanged for, in the same order on all ranks."""
    return [p for p in model.parameters() if p.requires_grad]


class StepSummary:
    """One rank's figures as a vector, whose sum over the ranks all ranks read.

    Length 2 + ranks + parameters + running statistics. A parameter that no rank's loss reached keeps the
    gradient None, as it would serially; so each rank says which it reached. Running statistics become
    the ranks' mean, weighted by their share of the samples: those of a serial batch-norm over groups.
    """

    def __init__(self, model: Module, rank: int, size: int, *, statistics: bool = True):
        self.rank, self.size = rank, size
        self.parameters = trained(model)
        if not self.parameters:
            raise ValueError(
                "the model, or this rank's layers of it, has no parameter to train; set requires_grad of "
                "some to True, or give every rank of a pipeline a layer that is trained"
            )
        self.frozen = {name: p for name, p in model.named_parameters().items() if not p.requires_grad}
        found = ((owner, attribute) for _, owner, attribute in model.named_arrays() if statistics)
        self.places = [(o, a) for o, a in found if is_statistic(getattr(o, a))]

    def __len__(self) -> int:
        return 2 + self.size + len(self.parameters) + sum(s.size for s in self.statistics())

    def statistics(self) -> list[Array]:
        return [getattr(owner, attribute) for owner, attribute in self.places]

    def refuse_thawed(self) -> None:
        """Raise ValueError for a parameter that was frozen when the model was placed, and is not now."""
        for name, parameter in self.frozen.items():
            if parameter.requires_grad:
                raise ValueError(
                    f"{name} was frozen when the model was placed, so ranks would not sum its gradients; "
                    "call model = backend.place(model) after requires_grad is set"
                )

    def pack(
        self, loss: float, share: float, backwards: int, reached: Collection[Tensor] | None = None
    ) -> Array:
        """This rank's vector: ``share`` is what it saw of the batch, ``backwards`` how often it ran.

        ``reached`` are the parameters its loss reached: by default those that have a gradient.
        """
        xp = array_module(self.parameters[0].data)
        counts = [float(backwards * (rank == self.rank)) for rank in range(self.size)]
        flags = [float(p.grad is not None if reached is None else p in reached) for p in self.parameters]
        figures = xp.asarray([loss, share, *counts, *flags], dtype=self.parameters[0].dtype)
        return xp.concatenate([figures, *(share * s.reshape(-1) for s in self.statistics())])

    def unpack(self, total: Array) -> tuple[float, list[bool]]:
        """The batch's loss, and whether each parameter was reached on any rank; statistics are set.

        Raises RuntimeError, naming two ranks, where ranks ran backward a different number of times.
        """
        start = 2 + self.size
        loss, share, *counts = (float(x) for x in total[:start])
        refuse_uneven([round(count) for count in counts])
        reached = [bool(x) for x in total[start : start + len(self.parameters)]]
        start += len(self.parameters)
        for s, (owner, _) in zip(self.statistics(), self.places, strict=True):
            if share and owner.training:  # those of a layer in eval mode are frozen
                s[...] = total[start : start + s.size].reshape(s.shape) / share
            start += s.size
        return loss, reached


def is_statistic(value: Any) -> bool:
    return not isinstance(value, Parameter) and np.dtype(value.dtype).kind == "f"


def refuse_uneven(backwards: list[int]) -> None:
    """Raise RuntimeError unless all ranks ran backward equally often since the last reduction."""
    for rank, count in enumerate(backwards):
        if count != backwards[0]:
            raise RuntimeError(
                f"rank 0 ran backward {backwards[0]} times before this reduction, rank {rank} {count} times; "
                "every rank must take the same steps, also without samples"
            )
