"""What ranks exchange with the gradients, in one message: loss, reached parameters, running statistics.

Lecture section: synchronous data parallelism. Lesson: 06_data_parallel, by ``synchronous.py``.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from minigrad.device import Array, array_module, to_host, unflatten
from minigrad.module import Module
from minigrad.nn import BatchNorm
from minigrad.tensor import Tensor

from ..consistency import (
    bits_of_checksum,
    other_batch_error,
    statistic_attributes,
    trained_parameters,
    weighted,
)

BACKWARDS = 64  # more than ranks run before a reduction; what is above tells batches apart


class StepSummary:
    """A vector of one rank's figures, which ranks sum.

    Its length is 2 + ranks + parameters + arrays of running statistics + elements of these arrays.

    A parameter that no rank's loss reached keeps the gradient None, as it would serially, so each rank says
    which parameters its loss reached. Running statistics become the mean over the ranks, weighted by their
    shares of the samples: those of a serial batch-norm over groups. Other state arrays are running
    statistics, too, unless no rank's forward pass wrote them: then they stay as they are, be they infinite,
    so each rank says which ones it wrote. The vector has float32 also where parameters have float16, in which
    a loss has three digits and a sum of means may overflow.
    """

    def __init__(self, model: Module, rank: int, size: int, *, statistics: bool = True):
        self.rank, self.size = rank, size
        self.parameters = trained_parameters(model)
        if not self.parameters:
            raise ValueError(
                "the model, or this rank's layers of it, has no parameter to train; set requires_grad of "
                "some to True, or give every rank of a pipeline a layer that is trained"
            )
        self.frozen = {name: p for name, p in model.named_parameters().items() if not p.requires_grad}
        arrays = statistic_attributes(model)  # batch-norms that are synchronized have the same ones
        self.attributes = [(o, a) for o, a in arrays if statistics or not isinstance(o, BatchNorm)]
        self.before: list[Array | None] = [None] * len(self.attributes)
        self.start_again()

    def __len__(self) -> int:
        one_each = len(self.parameters) + len(self.attributes)
        return 2 + self.size + one_each + sum(s.size for s in self.statistics())

    @property
    def dtype(self) -> np.dtype:
        """The vector has float32, or what is wider of the dtypes of parameters and statistics."""
        return np.result_type(np.float32, *(x.dtype for x in (*self.parameters, *self.statistics())))

    def statistics(self) -> list[Array]:
        return [getattr(owner, attribute) for owner, attribute in self.attributes]

    def start_again(self) -> None:
        """Forget the backwards before a reduction, and the fraction of the batch that they were over."""
        self.batch_fraction, self.n_backwards, self.batch_checksum = 0.0, 0, 0

    def count_backward(self, fraction: float) -> None:
        """Note that this rank runs backward over its ``fraction`` of the batch.

        Raises ValueError for a parameter that was frozen when the model was placed and no longer is.
        """
        for name, parameter in self.frozen.items():
            if parameter.requires_grad:
                raise ValueError(
                    f"{name} was frozen when the model was placed, so ranks would not sum its gradients; "
                    "call model = backend.place(model) after requires_grad is set"
                )
        if not self.n_backwards:  # a batch-norm writes its own in any case
            others = [not isinstance(owner, BatchNorm) for owner, _ in self.attributes]
            self.before = [s.copy() if k else None for s, k in zip(self.statistics(), others, strict=True)]
        self.batch_fraction += fraction
        self.n_backwards += 1

    def pack(self, loss: float, reached: Collection[Tensor] | None = None) -> Array:
        """This rank's vector; its counts start again.

        ``reached`` are the parameters that its loss reached: by default those that have a gradient. The count
        of backwards carries as much of the batch's checksum as the dtype has digits for.
        """
        xp, fraction = array_module(self.parameters[0].data), self.batch_fraction
        largest = (1 << bits_of_checksum(self.dtype)) // BACKWARDS
        count = self.n_backwards + BACKWARDS * (self.batch_checksum % largest)
        self.start_again()
        counts = [float(count * (rank == self.rank)) for rank in range(self.size)]
        flags = [float(p.grad is not None if reached is None else p in reached) for p in self.parameters]
        figures = xp.asarray([loss, fraction, *counts, *flags], dtype=self.dtype)
        statistics = [s.astype(self.dtype, copy=False) for s in self.statistics()]
        return xp.concatenate([figures, self.written(), weighted(figures, statistics, fraction)[1:]])

    def written(self) -> Array:
        """For each array of statistics 1 where this rank's forward passes wrote it, and else 0."""
        written = array_module(self.parameters[0].data).ones(len(self.attributes), self.dtype)
        for i, (s, before) in enumerate(zip(self.statistics(), self.before, strict=True)):
            if before is not None:
                written[i] = (s != before).any()
        return written

    def unpack(self, total: Array) -> tuple[float, list[bool]]:
        """The loss of the batch, and whether any rank's loss reached each parameter; sets the statistics.

        Raises RuntimeError, naming two ranks, where ranks ran backward a different number of times, and
        ValueError where they were given different batches.
        """
        start = 2 + self.size
        end = start + len(self.parameters)
        rest = end + len(self.attributes)
        figures = to_host(total[:rest]).tolist()  # one copy from a GPU for all
        loss, fraction, *counts = figures[:start]
        first, *others = (divmod(round(count), BACKWARDS) for count in counts)
        for rank, (checksum, count) in enumerate(others, 1):
            if count != first[1]:
                raise RuntimeError(
                    f"rank 0 ran backward {first[1]} times before this reduction, rank {rank} {count} "
                    "times; every rank must take the same steps, also without samples"
                )
            if checksum != first[0]:
                raise other_batch_error(rank)
        reached = [*map(bool, figures[start:end])]
        sums = unflatten(total[rest:], self.statistics())
        for (owner, attribute), weighted_sum, written in zip(
            self.attributes, sums, figures[end:], strict=True
        ):
            if written and fraction and owner.training:  # a layer in eval mode keeps its statistics
                getattr(owner, attribute)[...] = weighted_sum / fraction
        return loss, reached
