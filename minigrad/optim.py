"""Optimizers: they read ``grad`` and update ``data`` in place. Lecture section: gradient descent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from .device import Array, array_module
from .tensor import Parameter


class Optimizer:
    """Updates every parameter that has a gradient; ``lr`` may be changed between steps.

    Raises ValueError for settings out of range and for a model without parameters.
    """

    def __init__(self, parameters: Iterable[Parameter], lr: float, **at_least_zero: float):
        self.parameters = list(parameters)
        if not self.parameters:
            raise ValueError(
                "the optimizer got no parameters; pass model.parameters() of a model that has some"
            )
        if not lr > 0:  # NaN too
            raise ValueError(f"lr must be positive, got {lr}")
        for name, value in at_least_zero.items():
            if not value >= 0:
                raise ValueError(f"{name} must not be negative, got {value}")
        self.lr = lr
        self.state: list[dict[str, Any]] = [{} for _ in self.parameters]

    def zero_grad(self) -> None:
        """Forget all gradients, so that the next backward starts afresh."""
        for parameter in self.parameters:
            parameter.grad = None

    def step(self) -> None:
        """Update in place every parameter that has a gradient and is not frozen."""
        for parameter, state in zip(self.parameters, self.state, strict=True):
            if parameter.grad is not None and parameter.requires_grad:
                self.update(parameter.data, parameter.grad, state)

    def update(self, w: Array, g: Array, state: dict[str, Any]) -> None:
        """Change ``w`` in place by its gradient ``g`` (read only) and the ``state`` of earlier steps."""
        raise NotImplementedError(f"{type(self).__name__} needs an update method")


class SGD(Optimizer):
    """v <- momentum v + g; w <- w - lr v, or with Nesterov w - lr (g + momentum v).

    g includes weight_decay w. The momentum form of PyTorch and Goyal et al. 2017: a changed lr acts on the
    whole of v at once.
    """

    def __init__(
        self,
        parameters: Iterable[Parameter],
        lr: float,
        *,
        momentum: float = 0.0,
        nesterov: bool = False,
        weight_decay: float = 0.0,
    ):
        super().__init__(parameters, lr, momentum=momentum, weight_decay=weight_decay)
        if nesterov and not momentum:
            raise ValueError("nesterov needs a momentum above 0")
        self.momentum, self.nesterov, self.weight_decay = momentum, nesterov, weight_decay

    def update(self, w: Array, g: Array, state: dict[str, Any]) -> None:
        if self.momentum and "v" not in state:
            state["v"] = array_module(w).zeros_like(w)
        for part in cache_sized(w, g, state.get("v", w)):
            self.update_part(*part)

    def update_part(self, w: Array, g: Array, v: Array) -> None:
        if self.weight_decay:
            g = g + self.weight_decay * w
        if self.momentum:
            v *= self.momentum
            v += g
            g = g + self.momentum * v if self.nesterov else v
        w -= self.lr * g


class Adagrad(Optimizer):
    """s <- s + g^2; w <- w - lr g / (sqrt(s) + eps) (Duchi et al. 2011)."""

    def __init__(
        self,
        parameters: Iterable[Parameter],
        lr: float = 0.01,
        *,
        eps: float = 1e-10,
        weight_decay: float = 0.0,
    ):
        super().__init__(parameters, lr, eps=eps, weight_decay=weight_decay)
        self.eps, self.weight_decay = eps, weight_decay

    def update(self, w: Array, g: Array, state: dict[str, Any]) -> None:
        xp = array_module(w)
        if self.weight_decay:
            g = g + self.weight_decay * w
        if not state:
            state["s"] = xp.zeros_like(w)
        s = state["s"]
        s += g * g
        w -= self.lr * g / (xp.sqrt(s) + self.eps)


class Adam(Optimizer):
    """Bias-corrected running means of g and g^2 (Kingma and Ba 2015); weight_decay is added to g."""

    decoupled = False

    def __init__(
        self,
        parameters: Iterable[Parameter],
        lr: float = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ):
        super().__init__(parameters, lr, eps=eps, weight_decay=weight_decay)
        if not all(0 <= b < 1 for b in betas):
            raise ValueError(f"betas must lie in [0, 1), got {betas}")
        self.betas, self.eps, self.weight_decay = betas, eps, weight_decay

    def update(self, w: Array, g: Array, state: dict[str, Any]) -> None:
        xp = array_module(w)
        if self.weight_decay:
            if self.decoupled:
                w *= 1 - self.lr * self.weight_decay
            else:
                g = g + self.weight_decay * w
        if not state:
            state.update(m=xp.zeros_like(w), s=xp.zeros_like(w), t=0)
        state["t"] += 1
        m, s, t = state["m"], state["s"], state["t"]
        b1, b2 = self.betas
        m += (1 - b1) * (g - m)
        s += (1 - b2) * (g * g - s)
        w -= self.lr / (1 - b1**t) * m / (xp.sqrt(s / (1 - b2**t)) + self.eps)


class AdamW(Adam):
    """Adam whose weight decay shrinks w directly instead of being added to g (Loshchilov and Hutter 2019)."""

    decoupled = True


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
