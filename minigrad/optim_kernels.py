"""Optimizers on a GPU: the updates of many parameters as one kernel; ``update`` is the readable form.

Lecture section: GPU against CPU. Lesson: 04_gpu.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

from .device import Array, array_module, elementwise_kernel, on_gpu

if TYPE_CHECKING:
    from .optim import SGD, Adagrad, Adam, HeavyBall, RMSprop

MOST_PARAMETERS = 16  # updated by one kernel; CUDA passes 4 KB of arguments


class Update(NamedTuple):
    """What ``optimizer.update`` takes; coefficients may be device arrays of one element in w's dtype."""

    w: Array
    g: Array
    state: dict[str, Any]
    coefficients: tuple[float | Array, ...]
    optimizer: Any


def sgd(optimizer: SGD, updates: list[Update]) -> None:
    shared = {"momentum": optimizer.momentum, "decay": optimizer.weight_decay}
    slope, moments = slope_with(optimizer.weight_decay), ["v"] if optimizer.momentum else []
    statements = f"w = w - rate * {slope}"
    if optimizer.momentum:
        step = f"({slope} + momentum * v)" if optimizer.nesterov else "v"
        statements = f"v = momentum * v + {slope}; w = w - rate * {step}"
    update_together("sgd", statements, updates, moments, ["rate"], shared)


def heavy_ball(optimizer: HeavyBall, updates: list[Update]) -> None:
    statements = f"v = momentum * v + rate * {slope_with(optimizer.weight_decay)}; w = w - v"
    shared = {"decay": optimizer.weight_decay}
    update_together("heavy_ball", statements, updates, ["v"], ["rate", "momentum"], shared)


def adagrad(optimizer: Adagrad, updates: list[Update]) -> None:
    slope = slope_with(optimizer.weight_decay)
    statements = f"g = {slope}; s = s + g * g; w = w - rate * g / (sqrt(s) + eps)"
    shared = {"eps": optimizer.eps, "decay": optimizer.weight_decay}
    update_together("adagrad", statements, updates, ["s"], ["rate"], shared)


def rmsprop(optimizer: RMSprop, updates: list[Update]) -> None:
    centered, slope = optimizer.centered, slope_with(optimizer.weight_decay)
    variance = "choose(s > m * m, s - m * m, 0)" if centered else "s"
    statements = f"g = {slope}; s = alpha * s + rest * g * g; " + "m = alpha * m + rest * g; " * centered
    statements += f"g = g / (sqrt({variance}) + eps); "
    statements += "v = momentum * v + g; w = w - rate * v" if optimizer.momentum else "w = w - rate * g"
    shared = {"alpha": optimizer.alpha, "rest": 1 - optimizer.alpha, "eps": optimizer.eps}
    shared |= {"momentum": optimizer.momentum, "decay": optimizer.weight_decay}
    update_together("rmsprop", statements, updates, optimizer.moments(), ["rate"], shared)


def adam(optimizer: Adam, updates: list[Update]) -> None:
    (b1, b2), decay = optimizer.betas, optimizer.weight_decay
    shrunk = "w = shrink * w" if optimizer.decoupled else f"g = {slope_with(decay)}"
    statements = f"{shrunk}; m = m + first * (g - m); s = s + second * (g * g - s)"
    statements += "; max_s = choose(max_s > s, max_s, s)" if optimizer.amsgrad else ""
    variance = "max_s" if optimizer.amsgrad else "s"
    statements += f"; w = w - rate * m / (sqrt({variance} / correction) + eps)"
    shared = {"first": 1 - b1, "second": 1 - b2, "eps": optimizer.eps, "decay": decay}
    update_together(
        "adam", statements, updates, optimizer.moments(), ["rate", "correction", "shrink"], shared
    )


def slope_with(decay: float) -> str:
    return "(g + decay * w)" if decay else "g"


def update_together(
    name: str,
    statements: str,
    updates: Sequence[Update],
    moments: Sequence[str],
    coefficients: Sequence[str],
    shared: dict[str, float],
) -> None:
    """Compute ``statements`` for each element of all parameters; w and the ``moments`` change, not g.

    ``coefficients`` names those of an update; ``moments`` are the arrays of its state, zero at first.
    All arrays have one dtype and are contiguous. Equal to the readable form but for rounding: a GPU
    multiplies and adds in one operation.
    """
    for n in range(0, len(updates), MOST_PARAMETERS):
        some = updates[n : n + MOST_PARAMETERS]
        starts = [0, *accumulate(update.w.size for update in some)]
        numbers = [*shared.values(), *(x for update in some for x in update.coefficients)]
        size = {"size": starts[-1]}
        if any(map(on_gpu, numbers)):  # CuPy takes no size beside arrays that are not raw
            xp, size = array_module(some[0].w), {}
            numbers = [xp.broadcast_to(x, (starts[-1],)) if on_gpu(x) else x for x in numbers]
        gs = [flat(update.g) for update in some]
        written = [flat(x) for update in some for x in (*moments_of(update, moments), update.w)]
        kernel = kernel_of(name, statements, tuple(moments), tuple(coefficients), tuple(shared), len(some))
        kernel(*starts, *numbers, *gs, *written, **size)


def flat(x: Array) -> Array:
    return x if x.ndim == 1 else x.reshape(-1)


def moments_of(update: Update, names: Sequence[str]) -> list[Array]:
    for name in names:
        if name not in update.state:
            update.state[name] = array_module(update.w).zeros_like(update.w)
    return [update.state[name] for name in names]


@cache
def kernel_of(
    name: str,
    statements: str,
    moments: tuple[str, ...],
    coefficients: tuple[str, ...],
    shared: tuple[str, ...],
    n: int,
) -> Callable:
    """The kernel whose thread i computes the i-th element of ``n`` parameters, one after the other."""
    written, parameters, blocks = (*moments, "w"), range(n), []
    for k in parameters:
        variables = [f"T {x} = {x}{k}" for x in coefficients] + [
            f"T {x} = {x}{k}[j]" for x in ("g", *written)
        ]
        results = [f"{x}{k}[j] = {x}" for x in written]
        body = "; ".join([f"ptrdiff_t j = i - start{k}", *variables, statements, *results])
        blocks.append(f"if ((i >= start{k}) & (i < start{k + 1})) {{ {body}; }}")
    inputs = [
        *(f"int64 start{k}" for k in range(n + 1)),
        *(f"T {x}" for x in shared),
        *(f"T {x}{k}" for k in parameters for x in coefficients),
        *(f"raw T g{k}" for k in parameters),
    ]
    outputs = [f"raw T {x}{k}" for k in parameters for x in written]
    return elementwise_kernel(", ".join(inputs), ", ".join(outputs), " ".join(blocks), f"{name}_of_{n}")
