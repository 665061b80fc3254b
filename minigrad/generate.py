"""A text that a model writes: each symbol is drawn by the scores that the model gives after those before it.

Lecture section: back-propagation. Lesson: 17_sequences.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .device import array_module, to_host
from .keyword_settings import settings_by_name
from .module import Module, evaluation_mode
from .tensor import Tensor


@settings_by_name
def generate(
    model: Module,
    prompt: Sequence[int] | np.ndarray,
    symbols: int,
    *,
    length: int,
    temperature: float = 1.0,
    rng: np.random.Generator | int = 0,
) -> np.ndarray:
    """So many more symbols, int64, after those of ``prompt``; the model sees the last ``length`` of them.

    They have the probabilities softmax(scores / temperature): at 1 those that the model learned, below it the
    likely ones more often, and at 0 the likeliest always. The model is called in eval mode, once for each
    symbol. Raises ValueError for an empty prompt, for a temperature that is negative or not finite, and for
    a model whose scores are not finite.
    """
    if not len(prompt):
        raise ValueError("the prompt is empty; give at least one symbol to go on from")
    if not 0 <= temperature < math.inf:
        raise ValueError(f"the temperature must be a number of at least 0, got {temperature}")
    rng, row = np.random.default_rng(rng), [int(symbol) for symbol in prompt]
    xp = array_module(model.parameters()[0].data)
    with evaluation_mode(model):
        for _ in range(symbols):
            scores = to_host(model(Tensor(xp.asarray([row[-length:]]))).data)[0, -1].astype(np.float64)
            row.append(drawn(scores, temperature, rng))
    return np.array(row[len(prompt) :], np.int64)


def drawn(scores: np.ndarray, temperature: float, rng: np.random.Generator) -> int:
    """A symbol by its score; of equally likely ones at temperature 0 the first."""
    if not np.isfinite(scores).all():
        raise ValueError("the model gives scores that are not finite; train it again with a smaller rate")
    scores = scores - scores.max()
    if not temperature:
        return int(scores.argmax())
    with np.errstate(over="ignore"):  # at a temperature near 0
        chances = np.exp(scores / temperature)
    return int(rng.choice(len(scores), p=chances / chances.sum()))
