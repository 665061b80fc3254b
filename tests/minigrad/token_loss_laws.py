"""Laws of minigrad/nn/loss.py: it takes logits with the classes last; the laws take the class."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from minigrad import Tape, Tensor
from minigrad.device import to_device
from minigrad.testing import DEVICE

IGNORED = -1


def is_the_mean_over_tokens(
    make: Callable[..., Any],
    shape: tuple[int, int, int],
    seed: int,
    weighted: bool,
    smoothing: float,
    reduction: str,
) -> None:
    """Value and gradient are those of a loop over the tokens of logits (N, S, classes), in float64."""
    rng = np.random.default_rng(seed)
    x, labels = rng.normal(size=shape), rng.integers(IGNORED, shape[-1], size=shape[:-1])
    labels.flat[0] = 0  # one counts
    weight = rng.uniform(0.5, 2, shape[-1]) if weighted else np.ones(shape[-1])
    total, divisor, gradient = 0.0, 0.0, np.zeros(shape)
    for place in np.ndindex(*shape[:-1]):
        label = int(labels[place])
        if label == IGNORED:
            continue
        e = [math.exp(score) for score in x[place]]
        target = [smoothing / shape[-1] + (1 - smoothing) * (c == label) for c in range(shape[-1])]
        shares = [weight[c] * target[c] for c in range(shape[-1])]
        total -= sum(share * math.log(e[c] / sum(e)) for c, share in enumerate(shares))
        gradient[place] = [e[c] / sum(e) * sum(shares) - share for c, share in enumerate(shares)]
        divisor += weight[label]
    divisor = divisor if reduction == "mean" else 1.0
    given_weight = to_device(weight, DEVICE) if weighted else None
    loss = make(
        weight=given_weight,
        ignore_index=IGNORED,
        label_smoothing=smoothing,
        reduction=reduction,
        class_axis=-1,
    )
    logits = Tensor(to_device(x, DEVICE), requires_grad=True)
    with Tape() as tape:
        value = loss(logits, to_device(labels, DEVICE))
    tape.backward(value)
    np.testing.assert_allclose(value.item(), total / divisor, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(Tensor(logits.grad).numpy(), gradient / divisor, rtol=1e-12, atol=1e-12)
