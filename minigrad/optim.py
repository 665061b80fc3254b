"""Optimizers: they read ``grad`` and update ``data`` in place.

Lecture section: gradient descent. Lesson: 01_gradient_descent.

``HeavyBall`` and ``LARS`` belong to large mini-batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import Any, NamedTuple, Self

import numpy as np

from . import optim_kernels, optim_loops
from .device import Array, array_module, on_gpu, to_floats, to_host
from .keyword_settings import check_positions, positions_and_settings
from .lookup import lookup
from .loss_scale import StaticScale
from .master_weights import MasterWeights
from .module import Module
from .optim_kernels import Update
from .tensor import Parameter, Tensor

__all__ = ["LARS", "SGD", "Adagrad", "Adam", "AdamW", "HeavyBall", "Optimizer", "RMSprop", "decay_groups"]

Parameters = Iterable[Parameter] | Sequence[Mapping[str, Any]]
"""Parameters, or groups of them with settings of their own, as ``{"params": [...], "lr": 0.1}``."""


class Part(NamedTuple):
    """Some elements ``w`` of the optimizer's n-th parameter, and their gradient (None: not reached)."""

    n: int
    w: Array
    g: Array | None


class ParametersElsewhere(list[Parameter]):
    """An empty list: the parameters of a rank's optimizer where other ranks hold all parameters."""


class Optimizer:
    """Updates every parameter that has a gradient; ``lr`` may be changed between steps.

    With ``maximize`` the loss rises: each step is that of the gradient's opposite, as in PyTorch.

    ``parameters`` may be groups of them with settings of their own, dicts as PyTorch takes them:
    ``[{"params": matrices, "lr": 0.1}, {"params": biases, "weight_decay": 0.0}]``. Each of ``groups`` is then
    an optimizer, whose settings may be changed between steps, but for ``lr``: its rate stays ``ratio`` times
    that of the whole optimizer, so a schedule, which sets the latter, scales the rates of all groups, and a
    group gets another rate by another ``ratio``. What is changed on the whole optimizer reaches no group.

    A parameter that is passed twice counts once. Raises ValueError for settings out of range, a parameter in
    two groups, and for no parameters, unless they are ``ParametersElsewhere``; TypeError for anything else
    than parameters, and for a setting in a group that the optimizer does not have.
    """

    needs_norms = False
    adaptive = False  # whether a step is divided by the size of gradients
    maximize = False
    limit: float | None = None
    master_weights: MasterWeights | None = None
    groups: Sequence[Any] = ()

    def __new__(cls, *arguments: Any, **settings: Any) -> Self:
        """Raises TypeError, naming the settings, where some are passed by position."""
        check_positions(cls.__init__, cls.__name__, len(arguments), unseen=1)
        optimizer = super().__new__(cls)
        parameters = arguments[0] if arguments else settings.pop("parameters", None)
        if isinstance(parameters, list | tuple) and any(isinstance(group, dict) for group in parameters):
            optimizer.groups = [optimizer_of(cls, group, arguments[1:], settings) for group in parameters]
        return optimizer

    def __init__(self, parameters: Parameters, lr: float, **at_least_zero: float):
        if self.groups:
            elsewhere = any(isinstance(g["params"], ParametersElsewhere) for g in parameters)
            in_groups: list[Parameter] = [
                parameter for group in self.groups for parameter in group.parameters
            ]
            if len(set(in_groups)) < len(in_groups):
                raise ValueError("a parameter is in two groups; leave it in one of them")
            parameters = in_groups or (ParametersElsewhere() if elsewhere else [])
        self.parameters = unique_parameters(parameters)
        if not self.parameters and not isinstance(parameters, ParametersElsewhere):
            raise ValueError(
                f"{REQUIREMENT}; got none, so nothing would be trained (a rank whose layers have none passes "
                "model.parameters() itself)"
            )
        if not 0 < lr < inf:  # NaN too
            raise ValueError(f"lr must be positive, got {lr}")
        for name, value in at_least_zero.items():
            if not value >= 0:
                raise ValueError(f"{name} must not be negative, got {value}")
        self.lr, self.ratio, self.rate = lr, 1.0, lr
        for group in self.groups:
            group.ratio = group.lr / lr
        self.state: list[dict[str, Any]] = [{} for _ in self.parameters]

    def __repr__(self) -> str:
        """The settings, and how much is trained.

        >>> Adagrad([Parameter(np.zeros((10, 784))), Parameter(np.zeros(10))], 0.1)
        Adagrad(2 parameters of 7,850 elements, lr=0.1, eps=1e-10, weight_decay=0.0, maximize=False)
        """
        hidden = ("parameters", "state", "ratio", "rate")
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

    def with_master_weights(self, precision: str = "float16", scale: StaticScale | None = None) -> Self:
        """This optimizer, which from now on updates float32 copies of its parameters, which are rounded ones.

        Parameters are converted before, by ``model.to(dtype=precision)``, and backward starts from
        ``loss_scale`` times the loss; ``fit`` sees to that. See ``MasterWeights`` for settings and errors.
        """
        masters = MasterWeights(precision, scale)
        masters.check(self)
        self.master_weights = masters
        return self

    def state_dict(self) -> dict[str, Any]:
        """Settings and copies of the state, by numbers of parameters: arrays on the host, and numbers.

        It has PyTorch's "state" and "param_groups", here first the whole optimizer and then its groups.
        Raises RuntimeError where a strategy updates the parameters, of which ranks may hold parts.
        """
        self.check_own_step("let backends.checkpoint.TrainingCheckpoints write a checkpoint of all ranks")
        numbers = {parameter: i for i, parameter in enumerate(self.parameters)}
        groups = [
            {name: value for name, value in vars(group).items() if name not in NO_SETTINGS}
            | {"params": [numbers[p] for p in group.parameters]}
            for group in (self, *self.groups)
        ]
        states = [
            {key: to_host(x).copy() if hasattr(x, "shape") else x for key, x in state.items()}
            for state in self.state
        ]
        scale = self.master_weights and self.master_weights.scale.own_values()
        return {"state": dict(enumerate(states)), "param_groups": groups, "loss_scale": scale}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state_dict`` gave for as many parameters, in the same groups and shapes.

        Raises RuntimeError as ``state_dict``; ValueError, and changes nothing, where something does not fit.
        """
        if form_of(state, self.parameters) != form_of(self.state_dict(), self.parameters):
            raise ValueError(
                "the state is another optimizer's; make one of the same class and settings, with parameters "
                "of the same shapes in the same order and groups"
            )
        for group, saved in zip((self, *self.groups), state["param_groups"], strict=True):
            vars(group).update({name: value for name, value in saved.items() if name != "params"})
        for i, parameter in enumerate(self.parameters):
            array, values = array_module(parameter.data).array, state["state"][i].items()
            self.state[i] = {key: array(x) if hasattr(x, "shape") else x for key, x in values}
        if self.master_weights is not None:
            self.master_weights.scale.set_own_values(state["loss_scale"])

    def check_own_step(self, way_out: str) -> None:
        """Raise RuntimeError, with a way out, where a strategy updates one of the parameters."""
        for parameter in self.parameters:
            if parameter.updated_by is not None:
                raise RuntimeError(f"{parameter.updated_by} updates these parameters: {way_out}")

    @property
    def loss_scale(self) -> float:
        """The factor of the loss whose gradients a step takes: 1 without master weights."""
        return 1.0 if self.master_weights is None else self.master_weights.scale.value

    @property
    def skipped_steps(self) -> int:
        """How many steps were left out, because a gradient in 16 bits was not finite."""
        return 0 if self.master_weights is None else self.master_weights.scale.skipped

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
        negative or not finite, or was set in a group; RuntimeError, without ``parts`` and ``total``, where a
        strategy updates one of the parameters.
        """
        if parts is None and total is np.asarray:
            self.check_own_step(
                "call backend.update(model, optimizer) instead of optimizer.step(), or "
                "backend.close() before it"
            )
        if self.master_weights is None:
            self.apply(self.updates(parts, total))
        else:
            self.master_weights.step(self, self.parts() if parts is None else parts, total)

    def parts(self) -> Iterator[Part]:
        """All elements of each parameter, without a gradient where it is frozen."""
        return (Part(i, p.data, p.grad if p.requires_grad else None) for i, p in enumerate(self.parameters))

    def updates(
        self, parts: Iterable[Part] | None = None, total: Callable[[np.ndarray], np.ndarray] = np.asarray
    ) -> Iterator[Update]:
        """The arguments of ``update`` for each parameter that one step changes; the states count the step."""
        if not 0 <= self.lr < inf:
            raise ValueError(f"lr must not be negative, and finite, got {self.lr}; look at the schedule")
        for group in self.groups:
            if group.lr != group.rate:
                raise ValueError(
                    f"the lr of a group was set to {group.lr}, and is {group.ratio:g} times that of the "
                    "whole optimizer; set its ratio, as in optimizer.groups[0].ratio = 0.1"
                )
            group.lr = group.rate = group.ratio * self.lr
        group_of = self.group_of_each()
        parts = self.parts() if parts is None else parts
        if self.needs_norms or self.limit is not None:
            parts = list(parts)
            squares = total(self.squares(parts))
            parts = self.clip(parts, squares)
            rates = self.rates(squares)
        else:
            rates = [group.lr for group in group_of]
        for i, (n, w, g) in enumerate(parts):
            if i == len(self.state):
                self.state.append({})
            if g is not None:
                group = group_of[n]
                yield Update(w, g, self.state[i], group.coefficients(self.state[i], float(rates[n])), group)

    def group_of_each(self) -> list[Any]:
        """For each parameter the optimizer that has its settings: one of ``groups``, or this one."""
        group_of = {parameter: group for group in self.groups for parameter in group.parameters}
        return [group_of.get(parameter, self) for parameter in self.parameters]

    def apply(self, updates: Iterable[Update]) -> None:
        """Call ``update`` for each, or its loop; on a GPU, the form that updates many parameters at once."""
        together: dict[tuple[np.dtype, Any], list[Update]] = {}
        gpu_form, loop = GPU_FORMS.get(type(self).update), LOOPS.get(type(self).update)
        for update in updates:
            if update.optimizer.maximize:
                update = update._replace(g=-update.g)
            w, g, state, coefficients, group = update
            if gpu_form is not None and on_gpu(w) and are_flat(w, g):
                together.setdefault((w.dtype, group), []).append(update)
            elif loop is None or not loop(group, update):
                group.update(w, g, state, *coefficients)
        if gpu_form is not None:
            for (_, group), some in together.items():
                gpu_form(group, some)

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
        return [group.lr for group in self.group_of_each()]

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
        parameters: Parameters,
        lr: float,
        *,
        momentum: float = 0.0,
        nesterov: bool = False,
        weight_decay: float = 0.0,
        maximize: bool = False,
    ):
        super().__init__(parameters, lr, momentum=momentum, weight_decay=weight_decay)
        if nesterov and not momentum:
            raise ValueError("nesterov needs a momentum above 0")
        self.momentum, self.nesterov, self.weight_decay = momentum, nesterov, weight_decay
        self.maximize = maximize

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
        parameters: Parameters,
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
        parameters: Parameters,
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
        settings = [(group.lr, group.trust, group.weight_decay) for group in self.group_of_each()]
        lr, trust, decay = np.array(settings).reshape(-1, 3).T
        below = np.where(moving, g + decay * w, 1)
        return (lr * np.where(moving, trust * w / below, 1)).tolist()


class Adagrad(Optimizer):
    """s <- s + g^2; w <- w - lr g / (sqrt(s) + eps) (Duchi et al. 2011)."""

    adaptive = True

    def __init__(
        self,
        parameters: Parameters,
        lr: float = 0.01,
        *,
        eps: float = 1e-10,
        weight_decay: float = 0.0,
        maximize: bool = False,
    ):
        super().__init__(parameters, lr, eps=eps, weight_decay=weight_decay)
        self.eps, self.weight_decay, self.maximize = eps, weight_decay, maximize

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
        parameters: Parameters,
        lr: float = 0.01,
        *,
        alpha: float = 0.99,
        eps: float = 1e-8,
        momentum: float = 0.0,
        centered: bool = False,
        weight_decay: float = 0.0,
        maximize: bool = False,
    ):
        super().__init__(parameters, lr, eps=eps, momentum=momentum, weight_decay=weight_decay)
        if not 0 <= alpha < 1:
            raise ValueError(f"alpha must lie in [0, 1), got {alpha}")
        self.alpha, self.eps, self.momentum = alpha, eps, momentum
        self.centered, self.weight_decay, self.maximize = centered, weight_decay, maximize

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
    """Bias-corrected running means of g and g^2 (Kingma and Ba 2015); weight_decay is added to g.

    ``amsgrad`` divides by the largest running mean of g^2 so far, which never falls (Reddi et al. 2018).
    """

    adaptive = True
    decoupled = False

    def __init__(
        self,
        parameters: Parameters,
        lr: float = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        maximize: bool = False,
    ):
        super().__init__(parameters, lr, eps=eps, weight_decay=weight_decay)
        if not all(0 <= b < 1 for b in betas):
            raise ValueError(f"betas must lie in [0, 1), got {betas}")
        self.betas, self.eps, self.weight_decay = betas, eps, weight_decay
        self.amsgrad, self.maximize = amsgrad, maximize

    def moments(self) -> list[str]:
        """The arrays of a parameter's state: the running means of g and of g^2, and the latter's maximum."""
        return ["m", "s"] + ["max_s"] * self.amsgrad

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
        for name in self.moments():
            if name not in state:
                state[name] = xp.zeros_like(w)
        m, s, (b1, b2) = state["m"], state["s"], self.betas
        m += (1 - b1) * (g - m)
        s += (1 - b2) * (g * g - s)
        if self.amsgrad:
            s = xp.maximum(state["max_s"], s, out=state["max_s"])
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


NO_SETTINGS = ("parameters", "state", "groups", "master_weights")
REQUIREMENT = "an optimizer takes a list of groups, or a list of parameters, such as model.parameters()"


def unique_parameters(parameters: Parameters) -> list[Parameter]:
    """The ``parameters``, each once; raises TypeError for what is none."""
    if isinstance(parameters, Module | Tensor | Mapping):
        raise TypeError(f"{REQUIREMENT}; got {type(parameters).__name__}")
    unique: list[Any] = list({id(p): p for p in parameters}.values())
    for parameter in unique:
        if not isinstance(parameter, Tensor):
            raise TypeError(f"{REQUIREMENT}; got one of {type(parameter).__name__}")
    return unique


def form_of(state: Mapping[str, Any], parameters: list[Parameter]) -> Any:
    """What two states have in common if one can replace the other; None stands for shapes that do not fit."""
    groups = [(group.keys(), group["params"]) for group in state.get("param_groups", ())]
    arrays = [(i, x) for i, values in state.get("state", {}).items() for x in values.values() if np.ndim(x)]
    fits = all(i < len(parameters) and x.shape == parameters[i].shape for i, x in arrays)
    return groups, list(state.get("state", ())) if fits else None, state.get("loss_scale") is None


def optimizer_of(kind: type[Optimizer], group: Any, lr: tuple[float, ...], settings: dict[str, Any]) -> Any:
    """An optimizer of that ``kind`` for a ``group``, whose settings override ``lr`` and the ``settings``."""
    names = ["lr", *positions_and_settings(kind.__init__)[1]]
    if not isinstance(group, dict) or "params" not in group or group.keys() - {"params", *names}:
        raise TypeError(
            f'a group for {kind.__name__} is a dict with "params", a list of parameters, and settings, of '
            f"{', '.join(names)}; got {', '.join(group) if isinstance(group, dict) else type(group).__name__}"
        )
    own = {name: value for name, value in group.items() if name != "params"}
    parameters = unique_parameters(group["params"]) or ParametersElsewhere()
    return kind(parameters, *(() if "lr" in own else lr), **settings | own)


def decay_groups(parameters: Iterable[Parameter], weight_decay: float) -> list[dict[str, Any]]:
    """Two groups: parameters of two or more axes, with ``weight_decay``, and those of fewer, without.

    ``optim.AdamW(optim.decay_groups(model.parameters(), 0.1), 3e-4)`` shrinks no bias and no weight of a
    normalization over one axis, as is usual for transformers. A part of a parameter has as many axes as the
    whole one, so all ranks of a strategy agree. Raises TypeError for what is no list of parameters.
    """
    kind = ParametersElsewhere if isinstance(parameters, ParametersElsewhere) else list
    unique = unique_parameters(parameters)
    return [
        {"params": kind(p for p in unique if (p.ndim > 1) is decays), "weight_decay": weight_decay * decays}
        for decays in (True, False)
    ]


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
