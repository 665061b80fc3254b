"""What one input of a model is like: plans and measurements pass inputs through its layers before a training.

Lecture section: data and model parallelism together. Lesson: 14_hybrid, by ``plan.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from .device import array_module
from .module import Module
from .tensor import Tensor


class Sample(NamedTuple):
    """The shape of an input, and its dtype if it has integers; other numbers have the model's dtype."""

    shape: tuple[int, ...]
    integers: str | None = None

    def inputs(self, n: int, layers: Iterable[Module]) -> Tensor:
        """``n`` inputs on the device of the layers' parameters: drawn numbers of [0, 1), or integers 0."""
        like = next((p.data for layer in layers for p in layer.parameters()), np.zeros(0, np.float32))
        shape = (n, *self.shape)
        if self.integers is not None:
            return Tensor(array_module(like).zeros(shape, self.integers))
        return Tensor(array_module(like).asarray(np.random.default_rng(0).random(shape), dtype=like.dtype))


SampleLike = Sample | Sequence[int] | None
"""What strategies take: a sample, the shape alone where its numbers have the model's dtype, or nothing."""


def sample_of(sample: SampleLike) -> Sample | None:
    """The sample that a strategy was given."""
    return sample if sample is None or isinstance(sample, Sample) else Sample(tuple(sample))
