"""Optimizers on the host in one pass through memory; ``update`` is the readable form, whose bits these have.

So it does not matter which of them computes a step: loops do where Numba is there already, or where
parameters are so large that its import is worth the time.
Lecture section: gradient descent. Lesson: 01_gradient_descent, by ``optim.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from . import loops
from .device import Array
from .optim_kernels import Update, moments_of

if TYPE_CHECKING:
    from .optim import SGD, Adam

SMALL, LARGE = 1 << 15, 1 << 20  # elements of a parameter for which a loop's call, Numba's import pays
as_numpy_rounds = partial(loops.compiled, exactly=True)


def sgd(optimizer: SGD, update: Update) -> bool:
    """Whether this step, by momentum, was taken."""
    if not optimizer.momentum or not can_take(update, ["v"]):
        return False
    (v,), settings = moments_of(update, ["v"]), (optimizer.momentum, optimizer.weight_decay)
    run(write_sgd, update, [v], *update.coefficients, *settings, nesterov=optimizer.nesterov)
    return True


def adam(optimizer: Adam, update: Update) -> bool:
    """Whether this step was taken."""
    if optimizer.amsgrad or not can_take(update, ["m", "s"]):
        return False
    (b1, b2), decay = optimizer.betas, optimizer.weight_decay
    rate, correction, shrink = update.coefficients
    numbers = rate, correction, shrink if decay and optimizer.decoupled else 1.0
    settings = 1 - b1, 1 - b2, optimizer.eps, 0.0 if optimizer.decoupled else decay
    run(write_adam, update, moments_of(update, ["m", "s"]), *numbers, *settings)
    return True


def can_take(update: Update, moments: list[str]) -> bool:
    """Whether loops take the arrays, all of them without gaps, and Numba is there or worth its import."""
    w, g, state, *_ = update
    if w.size < SMALL or w.size < LARGE and not loops.are_imported():
        return False
    arrays = w, g, *[state[name] for name in moments if name in state]
    return loops.can_take(*arrays) and all([a.flags.c_contiguous for a in arrays])


def run(
    loop: Callable[..., None], update: Update, moments: list[Array], *numbers: Any, **flags: bool
) -> None:
    vectors = [a.reshape(-1) for a in (update.g, *moments, update.w)]
    loop(*vectors, *map(update.w.dtype.type, numbers), *flags.values())


@as_numpy_rounds
def write_sgd(
    g: Array, v: Array, w: Array, rate: float, momentum: float, decay: float, nesterov: bool
) -> None:
    for i in range(len(w)):
        d = g[i] + decay * w[i] if decay else g[i]
        v[i] = v[i] * momentum + d
        w[i] -= rate * (d + momentum * v[i] if nesterov else v[i])


@as_numpy_rounds
def write_adam(
    g: Array,
    m: Array,
    s: Array,
    w: Array,
    rate: float,
    correction: float,
    shrink: float,
    first: float,
    second: float,
    eps: float,
    decay: float,
) -> None:
    for i in range(len(w)):
        d = g[i] + decay * w[i] if decay else g[i]
        m[i] += first * (d - m[i])
        s[i] += second * (d * d - s[i])
        w[i] = w[i] * shrink - rate * m[i] / (np.sqrt(s[i] / correction) + eps)
