"""Inputs that plans and measurements pass through the layers of a model before a training.

Lecture section: data and model parallelism together. Lesson: 14_hybrid, by ``plan.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from .device import array_module
from .module import Module
from .nn import Embedding, TokenEmbedding
from .tensor import Parameter, Tensor


def inputs_of(layers: Iterable[Module], sample: Sequence[int], n: int) -> Tensor:
    """``n`` inputs of shape ``sample`` on the device of the layers' parameters.

    They are drawn numbers of [0, 1) in the dtype of the parameters, or, where the first layer that has
    parameters is a table, integers 0.
    """
    modules = (module for layer in layers for module in layer.modules())
    own = ((module, value) for module in modules for value in vars(module).values())
    first = next((pair for pair in own if isinstance(pair[1], Parameter)), None)
    like, shape = np.zeros(0, np.float32) if first is None else first[1].data, (n, *sample)
    xp = array_module(like)
    if first is not None and isinstance(first[0], Embedding | TokenEmbedding):
        return Tensor(xp.zeros(shape, np.int64))
    return Tensor(xp.asarray(np.random.default_rng(0).random(shape), dtype=like.dtype))
