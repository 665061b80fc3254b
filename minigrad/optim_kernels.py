"""An optimizer's update of one parameter on a GPU as one kernel; ``SGD.update`` is the readable form.

Lecture section: GPU against CPU. Lesson: 04_gpu.
"""

from __future__ import annotations

from .device import Array, elementwise_kernel


def sgd(w: Array, g: Array, v: Array | None, *, rate: float, nesterov: bool, **factors: float) -> None:
    """The step of ``SGD`` with the ``factors`` that are not 0: ``momentum``, with velocity v, and ``decay``.

    Equal to the readable form but for rounding: a GPU multiplies and adds in one operation.
    """
    factors = {name: factor for name, factor in factors.items() if factor}
    slope = "(g + decay * w)" if "decay" in factors else "g"
    step, statements = slope, []
    if v is not None:
        statements.append(f"v = momentum * v + {slope}")
        step = f"({slope} + momentum * v)" if nesterov else "v"
    statements.append(f"w = w - rate * {step}")
    inputs = ", ".join(f"T {name}" for name in ("g", "rate", *factors))
    kernel = elementwise_kernel(inputs, "T w" if v is None else "T v, T w", "; ".join(statements), "sgd")
    kernel(g, rate, *factors.values(), *(() if v is None else (v,)), w)
