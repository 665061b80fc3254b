"""Laws of minigrad/optim.py: an optimizer that loads the state of another one goes on with the same bits."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from minigrad import Parameter
from minigrad.device import to_host
from minigrad.testing import on_device

SHAPES = (3, 2), (4,), ()


def steps(optimizer: Any, first: int, last: int) -> None:
    """Gradients drawn by the number of the step; that of the last parameter comes in every second one."""
    optimizer.lr = 0.1 / (1 + first)
    for step in range(first, last):
        rng = np.random.default_rng(step)
        for i, parameter in enumerate(optimizer.parameters):
            g = on_device(np.asarray(rng.normal(size=parameter.shape), parameter.dtype))
            parameter.grad = g if i < 2 or step % 2 else None
        optimizer.step()


def goes_on_with_the_same_bits(make: Callable[[Any], Any], k: int, n: int, dtype: Any = np.float64) -> None:
    def start() -> tuple[Any, Any]:
        rng = np.random.default_rng(0)
        parameters = [Parameter(on_device(rng.normal(size=shape).astype(dtype))) for shape in SHAPES]
        return parameters, make(parameters)

    whole, optimizer = start()
    steps(optimizer, 0, k)
    state = optimizer.state_dict()
    before = copy.deepcopy(state)
    resumed, other = start()
    steps(other, 7, 7 + k)  # a state of its own, which is replaced
    for parameter, right in zip(resumed, whole, strict=True):
        parameter.data[...] = right.data
    other.load_state_dict(state)
    for trained in (optimizer, other):
        assert trained.lr == 0.1
        steps(trained, k, n)
    for i, (a, b) in enumerate(zip(whole, resumed, strict=True)):
        assert to_host(a.data).tobytes() == to_host(b.data).tobytes(), f"parameter {i} differs"
    assert repr(state) == repr(before), "the state changed with the optimizer"
