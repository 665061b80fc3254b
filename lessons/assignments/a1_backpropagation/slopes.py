"""What an op of assignment a1 is held to: its value by a definition, its pullbacks by slopes of that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from minigrad_course.grading import Wrong
from minigrad_course.grading.array_checks import check_equal, check_like, check_private, check_unchanged

from backends.laws import integers
from minigrad.testing import c_order, fortran_order, reversed_order, with_gaps

ORDERS = {
    "C order": c_order,
    "Fortran order": fortran_order,
    "with gaps": with_gaps,
    "reversed": reversed_order,
}
ABOUT = 1e-4  # slopes by differences are as exact as that
Oracle = Callable[..., Any]


@dataclass(frozen=True)
class Layer:
    """Inputs of an op by name, its settings, and how arrays lie in memory."""

    shapes: dict[str, tuple[int, ...]]
    settings: dict[str, int]
    order: str
    dtype: str
    seed: int
    ranks: int = 1

    def __str__(self) -> str:
        words = [f"{name} {value}" for name, value in {**self.shapes, **self.settings}.items()]
        return f"{', '.join(words)}, {self.dtype}, {self.order}"

    def arrays(self) -> dict[str, np.ndarray]:
        """Whole numbers from -5 to 4: sums of their products are exact, also in float32."""
        drawn = {name: integers(self.shapes[name], self.seed + i) // 10 for i, name in enumerate(self.shapes)}
        return {name: ORDERS[self.order](x.astype(self.dtype)) for name, x in drawn.items()}


def check_op(op: Any, oracle: Oracle, inputs: dict[str, np.ndarray], case: Layer, step: float = 1.0) -> None:
    """The value of ``op(*inputs)`` is the oracle's, and its pullbacks give the oracle's slopes.

    A slope is a difference quotient of ``step``, exact where the oracle is linear in each input. Each
    pullback is called with two gradients, and in both orders: what it gives depends on nothing but g.
    """
    names, arrays = list(inputs), list(inputs.values())
    before, exact = [x.copy() for x in arrays], [x.astype(np.float64) for x in arrays]
    slack = 1e-4 if case.dtype == "float32" else 1e-12 if step == 1 else 1e-6
    actual, expected = op(*arrays), oracle(*exact)
    check_unchanged(inputs, before)
    pullbacks = actual[1] if isinstance(actual, tuple) and len(actual) == 2 else ()
    listed = isinstance(pullbacks, tuple | list) and all(map(callable, pullbacks))
    if not listed or len(pullbacks) != len(names):
        raise Wrong(f"it should return a value and a tuple of pullbacks, one for each of {', '.join(names)}")
    value = np.asarray(actual[0], case.dtype) if isinstance(actual[0], float | np.floating) else actual[0]
    check_like("the value", value, np.shape(expected), case.dtype)
    check_equal("the value", value, np.asarray(expected), slack * (1 + abs(expected).max(initial=0)), ABOUT)
    check_private("the value", value, inputs)
    rng = np.random.default_rng(case.seed)
    for order in (range(len(names)), reversed(range(len(names)))):
        g = ORDERS[case.order](signs(rng, np.shape(expected)).astype(case.dtype))
        exact_g = g.astype(np.float64)
        for k in order:
            d, what, v = pullbacks[k](g), f"the gradient of {names[k]}", signs(rng, arrays[k].shape)
            check_like(what, d, v.shape, case.dtype)
            along = (d * v).astype(np.float64)
            apart = abs(along.sum() - slope(oracle, exact, exact_g, k, v, step))
            if not apart <= slack * (1 + abs(along).sum()):  # so also where it is not a number
                units = np.eye(v.size).reshape(v.size, *v.shape)
                slopes = [slope(oracle, exact, exact_g, k, unit, step) for unit in units]
                check_equal(what, d, np.reshape(slopes, v.shape), 0, ABOUT)
            check_private(what, d, {**inputs, "the value": value})
            if not np.array_equal(g, exact_g):
                raise Wrong(f"the pullback to {names[k]} changed g, which others still need")
    check_unchanged(inputs, before)


def slope(
    f: Oracle, inputs: Sequence[np.ndarray], g: np.ndarray, k: int, v: np.ndarray, step: float
) -> float:
    """How fast sum(g * f) changes when input k moves along v, by a central difference."""
    ends = [f(*inputs[:k], inputs[k] + s * v, *inputs[k + 1 :]) for s in (step, -step)]
    return float(((ends[0] - ends[1]) * g).sum() / (2 * step))


def signs(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Whole numbers that are not zero, so that nothing hides behind one."""
    return np.asarray(rng.choice([-3.0, -2.0, -1.0, 1.0, 2.0, 3.0], shape))
