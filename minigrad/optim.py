"""Optimizers: they read ``grad`` and update ``data`` in place.

Lecture section: gradient descent. Lesson: 01_gradient_descent.

``HeavyBall`` and ``LARS`` belong to large mini-batches.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from .device import Array, array_module
from .optimizer import Optimizer, cache_sized
from .tensor import Parameter


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

    def update(self, w: Array, g: Array, state: dict[str, Any], rate: float) -> None:
        if self.momentum and "v" not in state:
            state["v"] = array_module(w).zeros_like(w)
        for some_w, some_g, some_v in cache_sized(w, g, state.get("v", w)):
            self.update_part(some_w, some_g, some_v, rate)

    def update_part(self, w: Array, g: Array, v: Array, rate: float) -> None:
        if self.weight_decay:
            g = g + self.weight_decay * w
        if self.momentum:
            v *= self.momentum
            v += g
            g = g + self.momentum * v if self.nesterov else v
        w -= rate * g


class HeavyBall(Optimizer):
    """v <- momentum v + lr g; w <- w - v (Polyak 1964). g includes weight_decay w.

    The steps are SGD's while lr stays the same. As v holds past rates, v is multiplied by lr_t / lr_(t-1)
    when lr changes, the momentum correction of Goyal et al. 2017: then they are SGD's for any rates.
    ``corrected=False`` leaves it out, to see what goes wrong. After a step at rate 0, v starts anew.
    """

    def __init__(
        self,
        parameters: Iterable[Parameter],
        lr: float,
        *,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        corrected: bool = True,
    ):
        super().__init__(parameters, lr, momentum=momentum, weight_decay=weight_decay)
        self.momentum, self.weight_decay, self.corrected = momentum, weight_decay, corrected

    def update(self, w: Array, g: Array, state: dict[str, Any], rate: float) -> None:
        if not state:
            state.update(v=array_module(w).zeros_like(w), lr=self.lr)
        momentum = self.momentum
        if self.corrected and state["lr"]:
            momentum *= self.lr / state["lr"]
        state["lr"] = self.lr
        for some_w, some_g, some_v in cache_sized(w, g, state["v"]):
            self.update_part(some_w, some_g, some_v, rate, momentum)

    def update_part(self, w: Array, g: Array, v: Array, rate: float, momentum: float) -> None:
        if self.weight_decay:
            g = g + self.weight_decay * w
        v *= momentum
        v += rate * g
        w -= v


class LARS(HeavyBall):
    """v <- momentum v + r (g + weight_decay w); w <- w - v, with a rate r for each parameter.

    r = lr trust |w| / (|g| + weight_decay |w|): at first each parameter moves by lr trust of its own norm,
    however large its gradient is (You, Gitman and Ginsburg 2017). r = lr where |w| or |g| is 0, and for
    parameters of one axis or none, biases and those of a normalisation, which TensorFlow's LARSOptimizer has
    a ``skip_list`` for: of a bias before batch-norm |g| is rounding alone.
    """

    needs_norms = True
    adaptive = True

    def __init__(
        self,
        parameters: Iterable[Parameter],
        lr: float = 0.1,
        *,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        trust: float = 0.1,
    ):
        super().__init__(parameters, lr, momentum=momentum, weight_decay=weight_decay, corrected=False)
        if not trust > 0:
            raise ValueError(f"trust must be positive, got {trust}")
        self.trust = trust

    def rates(self, squares: np.ndarray) -> list[float]:
        squares = squares[: len(self.parameters)]  # behind them stand other ranks' parameters
        w, g = np.sqrt(squares).T
        moving = (w > 0) & (g > 0) & np.array([p.ndim > 1 for p in self.parameters], dtype=bool)
        below = np.where(moving, g + self.weight_decay * w, 1)
        return (self.lr * np.where(moving, self.trust * w / below, 1)).tolist()


class Adagrad(Optimizer):
    """s <- s + g^2; w <- w - lr g / (sqrt(s) + eps) (Duchi et al. 2011)."""

    adaptive = True

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

    def update(self, w: Array, g: Array, state: dict[str, Any], rate: float) -> None:
        xp = array_module(w)
        if self.weight_decay:
            g = g + self.weight_decay * w
        if not state:
            state["s"] = xp.zeros_like(w)
        s = state["s"]
        s += g * g
        w -= rate * g / (xp.sqrt(s) + self.eps)


class Adam(Optimizer):
    """Bias-corrected running means of g and g^2 (Kingma and Ba 2015); weight_decay is added to g."""

    adaptive = True
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

    def update(self, w: Array, g: Array, state: dict[str, Any], rate: float) -> None:
        xp = array_module(w)
        if self.weight_decay:
            if self.decoupled:
                w *= 1 - rate * self.weight_decay
            else:
                g = g + self.weight_decay * w
        if not state:
            state.update(m=xp.zeros_like(w), s=xp.zeros_like(w), t=0)
        state["t"] += 1
        m, s, t = state["m"], state["s"], state["t"]
        b1, b2 = self.betas
        m += (1 - b1) * (g - m)
        s += (1 - b2) * (g * g - s)
        w -= rate / (1 - b1**t) * m / (xp.sqrt(s / (1 - b2**t)) + self.eps)


class AdamW(Adam):
    """Adam whose weight decay shrinks w directly instead of being added to g (Loshchilov and Hutter 2019)."""

    decoupled = True


OPTIMIZERS: dict[str, type[Optimizer]] = {
    "sgd": SGD,
    "heavy-ball": HeavyBall,
    "lars": LARS,
    "adagrad": Adagrad,
    "adam": Adam,
    "adamw": AdamW,
}


def find_optimizer(name: str) -> type[Optimizer]:
    """The optimizer called ``name``; raises ValueError naming the choices."""
    if name not in OPTIMIZERS:
        raise ValueError(f"unknown optimizer {name!r}; choose one of {', '.join(OPTIMIZERS)}")
    return OPTIMIZERS[name]
