"""What all optimizers share: the parameters, the step over them or over this rank's part of them, norms.

Lecture section: gradient descent. Lesson: 01_gradient_descent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from math import inf
from typing import Any, NamedTuple, Self

import numpy as np

from .device import Array, array_module
from .module import Module
from .tensor import Parameter, Tensor


class Part(NamedTuple):
    """Some elements ``w`` of the optimizer's n-th parameter, and their gradient (None: not reached)."""

    n: int
    w: Array
    g: Array | None


class HeldElsewhere(list[Parameter]):
    """No parameters: what a rank gives its optimizer where other ranks hold all there are."""


class Optimizer:
    """Updates every parameter that has a gradient; ``lr`` may be changed between steps.

    A parameter that is given twice counts once. Raises ValueError for settings out of range and for no
    parameters, unless they are ``HeldElsewhere``; TypeError for what is no parameter.
    """

    needs_norms = False
    adaptive = False  # whether a step is divided by the size of gradients
    limit: float | None = None

    def __init__(self, parameters: Iterable[Parameter], lr: float, **at_least_zero: float):
        self.parameters = checked(parameters)
        if not 0 < lr < inf:  # NaN too
            raise ValueError(f"lr must be positive, got {lr}")
        for name, value in at_least_zero.items():
            if not value >= 0:
                raise ValueError(f"{name} must not be negative, got {value}")
        self.lr = lr
        self.state: list[dict[str, Any]] = [{} for _ in self.parameters]

    def clipped(self, limit: float) -> Self:
        """This optimizer, which from now on scales all gradients down to a joint 2-norm of at most ``limit``.

        The gradients are scaled in place (Pascanu, Mikolov and Bengio 2013).
        """
        if not limit > 0:
            raise ValueError(f"gradients can be clipped to a norm above 0, got {limit}")
        self.limit = limit
        return self

    def zero_grad(self) -> None:
        """Forget all gradients, so that the next backward starts afresh."""
        for parameter in self.parameters:
            parameter.grad = None

    def step(
        self, parts: Iterable[Part] | None = None, total: Callable[[np.ndarray], np.ndarray] = np.asarray
    ) -> None:
        """Update in place every parameter that has a gradient and is not frozen.

        A rank that owns only some elements passes these as ``parts``, the same ones in the same order at
        every step, and ``total``, which sums an array over the ranks: then norms are those of whole
        parameters, while ``state`` has an entry for each part. Raises ValueError for a rate ``lr`` that is
        negative or not finite.
        """
        if not 0 <= self.lr < inf:
            raise ValueError(f"lr must not be negative, and finite, got {self.lr}; look at the schedule")
        if parts is None:
            found = enumerate(self.parameters)
            parts = [Part(i, p.data, p.grad if p.requires_grad else None) for i, p in found]
        if self.needs_norms or self.limit is not None:
            parts = list(parts)
            squares = total(self.squares(parts))
            parts = self.clip(parts, squares)
            rates = self.rates(squares)
        else:
            rates = [self.lr] * len(self.parameters)
        for i, (n, w, g) in enumerate(parts):
            if i == len(self.state):
                self.state.append({})
            if g is not None:
                self.update(w, g, self.state[i], rates[n])

    def squares(self, parts: list[Part]) -> np.ndarray:
        """The squared 2-norm of each parameter's elements among ``parts`` and of their gradients, (n, 2)."""
        found = np.zeros((len(self.parameters), 2))
        for n, w, g in parts:
            if g is not None:
                found[n] += squared_norm(w), squared_norm(g)
        return found

    def clip(self, parts: list[Part], squares: np.ndarray) -> list[Part]:
        """The same ``parts``, with gradients scaled down where their joint norm exceeds the limit."""
        norm = float(np.sqrt(squares[:, 1].sum()))
        if self.limit is not None and norm > self.limit:
            squares[:, 1] *= (self.limit / norm) ** 2
            for part in parts:
                if part.g is not None:
                    part.g[...] *= self.limit / norm
        return parts

    def rates(self, squares: np.ndarray) -> list[float]:
        """The learning rate of each parameter."""
        return [self.lr] * len(self.parameters)

    def update(self, w: Array, g: Array, state: dict[str, Any], rate: float) -> None:
        """Change ``w`` in place by its gradient ``g`` (read only) and the ``state`` of earlier steps."""
        raise NotImplementedError(f"{type(self).__name__} needs an update method")


def checked(parameters: Iterable[Parameter]) -> list[Parameter]:
    """The ``parameters``, each once; raises TypeError and ValueError as ``Optimizer``."""
    wanted = "an optimizer takes a list of parameters, such as model.parameters()"
    if isinstance(parameters, Module | Tensor | Mapping):
        raise TypeError(f"{wanted}; got {type(parameters).__name__}")
    found = list({id(p): p for p in parameters}.values())
    for parameter in found:
        if not isinstance(parameter, Tensor):
            raise TypeError(f"{wanted}; got one of {type(parameter).__name__}")
    if not found and not isinstance(parameters, HeldElsewhere):
        raise ValueError(f"{wanted}; got none, so nothing would be trained")
    return found


def squared_norm(x: Array) -> float:
    """The sum of the squares; of numbers whose squares are too large or small for their dtype too."""
    xp = array_module(x)
    found, limits = float(xp.vdot(x, x)), np.finfo(x.dtype)
    if limits.bits < 64 and not limits.tiny / limits.eps < found < limits.max:
        x = x.astype(np.float64)
        found = float(xp.vdot(x, x))
    return found


def cache_sized(*arrays: Array, size: int = 1 << 16) -> Iterator[tuple[Array, ...]]:
    """The arrays, all of one shape, as views of ``size`` elements at a time.

    Several operations on a part that stays in cache read memory once; on whole arrays, once each. Arrays
    that are small, on a GPU or not contiguous are given whole.
    """
    first = arrays[0]
    if first.size <= size or not all(type(a) is np.ndarray and a.flags.c_contiguous for a in arrays):
        yield arrays
        return
    flat = [a.reshape(-1) for a in arrays]
    for start in range(0, first.size, size):
        yield tuple(a[start : start + size] for a in flat)
