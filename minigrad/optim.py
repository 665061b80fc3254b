"""Optimizers: they read ``grad`` and update ``data`` in place.

Lecture section: gradient descent. Lesson: 01_gradient_descent.

``HeavyBall`` and ``LARS`` belong to large mini-batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from math import inf
from typing import Any, NamedTuple, Self

import numpy as np

from . import optim_kernels, optim_loops
from .device import Array, array_module, on_gpu, to_floats
from .keyword_settings import check_positions
from .lookup import lookup
from .module import Module
from .optim_kernels import Update
from .tensor import Parameter, Tensor

__all__ = ["LARS", "SGD", "Adagrad", "Adam", "AdamW", "HeavyBall", "Optimizer", "RMSprop"]


class Part(NamedTuple):
    """Some elements ``w`` of the optimizer's n-th parameter, and their gradient (None: not reached)."""

    n: int
    w: Array
    g: Array | None


class ParametersElsewhere(list[Parameter]):
    """An empty list: the parameters of a rank's optimizer where other ranks hold all parameters."""


class Optimizer:
    """Updates every parameter that has a gradient; ``lr`` may be changed between steps.

    A parameter that is passed twice counts once. Raises ValueError for settings out of range and for no
    parameters, unless they are ``ParametersElsewhere``; TypeError for anything else than parameters.
    """

    needs_norms = False
    adaptive = False  # whether a step is divided by the size of gradients
    limit: float | None = None

    def __new__(cls, *arguments: Any, **settings: Any) -> Self:
        """Raises TypeError, naming the settings, where some are passed by position."""
        check_positions(cls.__init__, cls.__name__, len(arguments), unseen=1)
        return super().__new__(cls)

    def __init__(self, parameters: Iterable[Parameter], lr: float, **at_least_zero: float):
        self.parameters = unique_parameters(parameters)
        if not 0 < lr < inf:  # NaN too
            raise ValueError(f"lr must be positive, got {lr}")
        for name, value in at_least_zero.items():
            if not value >= 0:
                raise ValueError(f"{name} must not be negative, got {value}")
        self.lr = lr
        self.state: list[dict[str, Any]] = [{} for _ in self.parameters]

    def __repr__(self) -> str:
        """The settings, and how much is trained.

        >>> SGD([Parameter(np.zeros((10, 784))), Parameter(np.zeros(10))], 0.1, momentum=0.9)
        SGD(2 parameters of 7,850 elements, lr=0.1, momentum=0.9, nesterov=False, weight_decay=0.0)
        """
        hidden = ("parameters", "state")
        settings = [f"{name}={value!r}" for name, value in vars(self).items() if name not in hidden]
        size = sum(parameter.size for parameter in self.parameters)
        trained = f"{len(self.parameters)} parameters of {size:,} elements"
        return f"{type(self).__name__}({', '.join([trained, *settings])})"

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
        negative or not finite; RuntimeError, without ``parts`` and ``total``, where a strategy updates one of
        the parameters.
        """
        if parts is None and total is np.asarray:
            for parameter in self.parameters:
                if parameter.updated_by is not None:
                    raise RuntimeError(
                        f"{parameter.updated_by} updates these parameters: call backend.update(model, "
                        "optimizer) instead of optimizer.step(), or backend.close() before it"
                    )
        self.apply(self.updates(parts, total))

    def updates(
        self, parts: Iterable[Part] | None = None, total: Callable[[np.ndarray], np.ndarray] = np.asarray
    ) -> Iterator[Update]:
        """The arguments of ``update`` for each parameter that one step changes; the states count the step."""
        if not 0 <= self.lr < inf:
            raise ValueError(f"lr must not be negative, and finite, got {self.lr}; look at the schedule")
        if parts is None:
            numbered = enumerate(self.parameters)
            parts = [Part(i, p.data, p.grad if p.requires_grad else None) for i, p in numbered]
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
                yield Update(w, g, self.state[i], self.coefficients(self.state[i], rates[n]))

    def apply(self, updates: Iterable[Update]) -> None:
        """Call ``update`` for each, or its loop; on a GPU, the form that updates many parameters at once."""
        together: dict[np.dtype, list[Update]] = {}
        gpu_form, loop = GPU_FORMS.get(type(self).update), LOOPS.get(type(self).update)
        for update in updates:
            w, g, state, coefficients = update
            if gpu_form is not None and on_gpu(w) and are_flat(w, g):
                together.setdefault(w.dtype, []).append(update)
            elif loop is None or not loop(self, update):
                self.update(w, g, state, *coefficients)
        if gpu_form is not None:
            for some in together.values():
                gpu_form(self, some)

    def squares(self, parts: list[Part]) -> np.ndarray:
        """The squared 2-norm of each parameter's elements among ``parts`` and of their gradients, (n, 2)."""
        sums = np.zeros((len(self.parameters), 2))
        reached = [part for part in parts if part.g is not None]
        squares = squared_norms([array for _, w, g in reached for array in (w, g)])
        for i, (n, _, _) in enumerate(reached):
            sums[n] += squares[2 * i : 2 * i + 2]
        return sums

    def clip(self, parts: list[Part], squares: np.ndarray) -> list[Part]:
        """``parts``, with gradients scaled down where their joint norm exceeds the limit."""
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

    def coefficients(self, state: dict[str, Any], rate: float) -> tuple[float, ...]:
        """The numbers of one update that change from step to step; ``update`` takes them after ``state``.

        They are computed on the host, where ``state`` counts steps; a captured step reads them on the GPU.
        """
        return (rate,)

    def update(self, w: Array, g: Array, state: dict[str, Any], rate: float) -> None:
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

    def update(self, w: Array, g: Array, state: dict[str, Any], rate: float) -> None:
        if self.momentum and "v" not in state:
            state["v"] = array_module(w).zeros_like(w)
        for some_w, some_g, v in cache_sized(w, g, state.get("v", w)):
            d = some_g + self.weight_decay * some_w if self.weight_decay else some_g
            if self.momentum:
                v *= self.momentum
                v += d
                d = d + self.momentum * v if self.nesterov else v
            some_w -= rate * d


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

    def coefficients(self, state: dict[str, Any], rate: float) -> tuple[float, ...]:
        momentum = self.momentum
        if self.corrected and state.get("lr"):
            momentum *= self.lr / state["lr"]
        state["lr"] = self.lr
        return rate, momentum

    def update(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, w: Array, g: Array, state: dict[str, Any], rate: float, momentum: float
    ) -> None:
        if "v" not in state:
            state["v"] = array_module(w).zeros_like(w)
        for some_w, some_g, v in cache_sized(w, g, state["v"]):
            d = some_g + self.weight_decay * some_w if self.weight_decay else some_g
            v *= momentum
            v += rate * d
            some_w -= v


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
        squares = squares[: len(self.parameters)]  # the rest belongs to other ranks' parameters
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


class RMSprop(Optimizer):
    """s <- alpha s + (1 - alpha) g^2; w <- w - lr g / (sqrt(s) + eps) (Tieleman and Hinton 2012).

    g includes weight_decay w. As in PyTorch, ``centered`` takes the square of the running mean of g away from
    s, and with momentum v <- momentum v + g / (sqrt(s) + eps); w <- w - lr v. Raises ValueError unless alpha
    lies in [0, 1).
    """

    adaptive = True

    def __init__(
        self,
        parameters: Iterable[Parameter],
        lr: float = 0.01,
        *,
        alpha: float = 0.99,
        eps: float = 1e-8,
        momentum: float = 0.0,
        centered: bool = False,
        weight_decay: float = 0.0,
    ):
        super().__init__(parameters, lr, eps=eps, momentum=momentum, weight_decay=weight_decay)
        if not 0 <= alpha < 1:
            raise ValueError(f"alpha must lie in [0, 1), got {alpha}")
        self.alpha, self.eps, self.momentum = alpha, eps, momentum
        self.centered, self.weight_decay = centered, weight_decay

    def moments(self) -> list[str]:
        """The arrays of a parameter's state: the running means of g^2 and of g, and the momentum."""
        return ["s"] + ["m"] * self.centered + ["v"] * (self.momentum > 0)

    def update(self, w: Array, g: Array, state: dict[str, Any], rate: float) -> None:
        xp = array_module(w)
        for name in self.moments():
            if name not in state:
                state[name] = xp.zeros_like(w)
        moments = (state.get(name, w) for name in "smv")
        for some_w, some_g, s, m, v in cache_sized(w, g, *moments):
            d = some_g + self.weight_decay * some_w if self.weight_decay else some_g
            s *= self.alpha
            s += (1 - self.alpha) * (d * d)
            variance = s
            if self.centered:
                m *= self.alpha
                m += (1 - self.alpha) * d
                variance = xp.maximum(s - m * m, 0)  # rounding may take it below
            d = d / (xp.sqrt(variance) + self.eps)
            if self.momentum:
                v *= self.momentum
                v += d
                d = v
            some_w -= rate * d


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

    def coefficients(self, state: dict[str, Any], rate: float) -> tuple[float, ...]:
        """The rate with the correction of m, the correction of s, and AdamW's factor of w."""
        if not state:
            state.update(t=0)
        state["t"] += 1
        t, (b1, b2) = state["t"], self.betas
        return rate / (1 - b1**t), 1 - b2**t, 1 - rate * self.weight_decay

    def update(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, w: Array, g: Array, state: dict[str, Any], rate: float, correction: float, decay: float
    ) -> None:
        xp = array_module(w)
        if self.weight_decay:
            if self.decoupled:
                w *= decay
            else:
                g = g + self.weight_decay * w
        if "m" not in state:
            state.update(m=xp.zeros_like(w), s=xp.zeros_like(w))
        m, s, (b1, b2) = state["m"], state["s"], self.betas
        m += (1 - b1) * (g - m)
        s += (1 - b2) * (g * g - s)
        w -= rate * m / (xp.sqrt(s / correction) + self.eps)


class AdamW(Adam):
    """Adam whose weight decay shrinks w directly instead of being added to g (Loshchilov and Hutter 2019)."""

    decoupled = True


GPU_FORMS: dict[Callable[..., None], Callable[[Any, list[Update]], None]] = {
    SGD.update: optim_kernels.sgd,
    HeavyBall.update: optim_kernels.heavy_ball,
    Adagrad.update: optim_kernels.adagrad,
    RMSprop.update: optim_kernels.rmsprop,
    Adam.update: optim_kernels.adam,
}
"""What updates many parameters of one dtype in one launch on a GPU, by the readable ``update``."""
LOOPS: dict[Callable[..., None], Callable[[Any, Update], bool]] = {
    SGD.update: optim_loops.sgd,
    Adam.update: optim_loops.adam,
}
"""What updates a parameter on the host in one pass, by the readable ``update``; False where it does not."""


def unique_parameters(parameters: Iterable[Parameter]) -> list[Parameter]:
    """The ``parameters``, each once; raises TypeError and ValueError as ``Optimizer``."""
    requirement = "an optimizer takes a list of parameters, such as model.parameters()"
    if isinstance(parameters, Module | Tensor | Mapping):
        raise TypeError(f"{requirement}; got {type(parameters).__name__}")
    unique = list({id(p): p for p in parameters}.values())
    for parameter in unique:
        if not isinstance(parameter, Tensor):
            raise TypeError(f"{requirement}; got one of {type(parameter).__name__}")
    if not unique and not isinstance(parameters, ParametersElsewhere):
        raise ValueError(
            f"{requirement}; got none, so nothing would be trained (a rank whose layers have none passes "
            "model.parameters() itself)"
        )
    return unique


def are_flat(w: Array, g: Array) -> bool:
    """Whether a kernel can take both arrays element by element."""
    return w.dtype == g.dtype and w.flags.c_contiguous and g.flags.c_contiguous


def squared_norms(arrays: list[Array]) -> list[float]:
    """The sum of squares of each array, in float64 where one is too large or too small for the dtype."""
    squares = to_floats([array_module(x).vdot(x, x) for x in arrays])
    again = [i for i, x in enumerate(arrays) if not is_representable(squares[i], np.finfo(x.dtype))]
    if again:
        doubles = [arrays[i].astype(np.float64) for i in again]
        for i, square in zip(again, to_floats([array_module(x).vdot(x, x) for x in doubles]), strict=True):
            squares[i] = square
    return squares


def is_representable(square: float, limits: np.finfo) -> bool:
    """Whether the dtype of these ``limits`` can hold ``square`` to its precision."""
    return limits.bits >= 64 or bool(limits.tiny / limits.eps < square < limits.max)


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


OPTIMIZERS: dict[str, type[Optimizer]] = {
    "sgd": SGD,
    "heavy-ball": HeavyBall,
    "lars": LARS,
    "adagrad": Adagrad,
    "rmsprop": RMSprop,
    "adam": Adam,
    "adamw": AdamW,
}


def find_optimizer(name: str) -> type[Optimizer]:
    """The optimizer called ``name``; raises ValueError naming the choices."""
    return lookup("optimizer", name, OPTIMIZERS)
