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
    from .optim import SGD, Adagrad, Adam, HeavyBall

MOST_PARAMETERS = 16  # updated by one kernel; CUDA passes 4 KB of arguments


class Update(NamedTuple):
    """The arguments of ``Optimizer.update``."""

    w: Array
    g: Array
    state: dict[str, Any]
    rate: float


def sgd(optimizer: SGD, updates: list[Update]) -> None:
    shared = {"momentum": optimizer.momentum, "decay": optimizer.weight_decay}
    slope, moments = slope_with(optimizer.weight_decay), ["v"] if optimizer.momentum else []
    statements = f"w = w - rate * {slope}"
    if optimizer.momentum:
        step = f"({slope} + momentum * v)" if optimizer.nesterov else "v"
        statements = f"v = momentum * v + {slope}; w = w - rate * {step}"
    arrays, own = [arrays_of(u, *moments) for u in updates], [{"rate": u.rate} for u in updates]
    update_together("sgd", statements, arrays, own, shared)


def heavy_ball(optimizer: HeavyBall, updates: list[Update]) -> None:
    arrays = [arrays_of(u, "v") for u in updates]
    own = [{"rate": u.rate, "momentum": optimizer.momentum_at(u.state)} for u in updates]
    statements = f"v = momentum * v + rate * {slope_with(optimizer.weight_decay)}; w = w - v"
    update_together("heavy_ball", statements, arrays, own, {"decay": optimizer.weight_decay})


def adagrad(optimizer: Adagrad, updates: list[Update]) -> None:
    shared = {"eps": optimizer.eps, "decay": optimizer.weight_decay}
    slope = slope_with(optimizer.weight_decay)
    statements = f"g = {slope}; s = s + g * g; w = w - rate * g / (sqrt(s) + eps)"
    own = [{"rate": u.rate} for u in updates]
    update_together("adagrad", statements, [arrays_of(u, "s") for u in updates], own, shared)


def adam(optimizer: Adam, updates: list[Update]) -> None:
    (b1, b2), decay = optimizer.betas, optimizer.weight_decay
    arrays, own = [arrays_of(u, "m", "s") for u in updates], []
    for _, _, state, rate in updates:
        t = state["t"] = state.get("t", 0) + 1
        own.append({"step": rate / (1 - b1**t), "correction": 1 - b2**t, "shrink": 1 - rate * decay})
    shrunk = "w = shrink * w" if optimizer.decoupled else f"g = {slope_with(decay)}"
    statements = f"{shrunk}; m = m + first * (g - m); s = s + second * (g * g - s)"
    statements += "; w = w - step * m / (sqrt(s / correction) + eps)"
    shared = {"first": 1 - b1, "second": 1 - b2, "eps": optimizer.eps, "decay": decay}
    update_together("adam", statements, arrays, own, shared)


def slope_with(decay: float) -> str:
    return "(g + decay * w)" if decay else "g"


def arrays_of(update: Update, *moments: str) -> dict[str, Array]:
    """The arrays of one parameter; the ``moments`` are zero at first."""
    w, g, state, _ = update
    for name in moments:
        if name not in state:
            state[name] = array_module(w).zeros_like(w)
    return {"g": g, **{name: state[name] for name in moments}, "w": w}


def update_together(
    name: str,
    statements: str,
    arrays: Sequence[dict[str, Array]],
    own: Sequence[dict[str, float]],
    shared: dict[str, float],
) -> None:
    """Compute ``statements`` for each element of each parameter's ``arrays``, of which g is only read.

    Those of one parameter have one size, and all have one dtype and are contiguous. Numbers are each
    parameter's ``own`` or ``shared``; each may be a device array of one element and the same dtype, too.
    Equal to the readable form but for rounding: a GPU multiplies and adds in one operation.
    """
    for n in range(0, len(arrays), MOST_PARAMETERS):
        some, theirs = arrays[n : n + MOST_PARAMETERS], own[n : n + MOST_PARAMETERS]
        starts = [0, *accumulate(of["g"].size for of in some)]
        flat = [{name: x.reshape(-1) for name, x in of.items()} for of in some]
        numbers = [*shared.values(), *(x for of in theirs for x in of.values())]
        size = {"size": starts[-1]}
        if any(map(on_gpu, numbers)):  # CuPy takes no size beside arrays that are not raw
            xp, size = array_module(some[0]["g"]), {}
            numbers = [xp.broadcast_to(x, (starts[-1],)) if on_gpu(x) else x for x in numbers]
        written = [x for of in flat for name, x in of.items() if name != "g"]
        kernel = kernel_of(name, statements, tuple(some[0]), tuple(theirs[0]), tuple(shared), len(some))
        kernel(*starts, *numbers, *(of["g"] for of in flat), *written, **size)


@cache
def kernel_of(
    name: str, statements: str, arrays: tuple[str, ...], own: tuple[str, ...], shared: tuple[str, ...], n: int
) -> Callable:
    """The kernel whose thread i computes the i-th element of ``n`` parameters, one after the other."""
    written, parameters = [x for x in arrays if x != "g"], range(n)
    blocks = []
    for k in parameters:
        own_values = [f"T {x} = {x}{k}" for x in own]
        elements = [f"T {x} = {x}{k}[j]" for x in arrays]
        results = [f"{x}{k}[j] = {x}" for x in written]
        body = "; ".join([f"ptrdiff_t j = i - start{k}", *own_values, *elements, statements, *results])
        blocks.append(f"if ((i >= start{k}) & (i < start{k + 1})) {{ {body}; }}")
    inputs = [
        *(f"int64 start{k}" for k in range(n + 1)),
        *(f"T {x}" for x in shared),
        *(f"T {x}{k}" for k in parameters for x in own),
        *(f"raw T g{k}" for k in parameters),
    ]
    outputs = [f"raw T {x}{k}" for k in parameters for x in written]
    return elementwise_kernel(", ".join(inputs), ", ".join(outputs), " ".join(blocks), f"{name}_of_{n}")
