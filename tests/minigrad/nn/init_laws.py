"""Laws of minigrad/nn/init.py: numbers have the spread of their formula, in place and from the generator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minigrad import Parameter, Tensor
from minigrad.device import to_host
from minigrad.testing import on_device


def fans(shape: tuple[int, ...]) -> tuple[int, int]:
    """The inputs of an output and the outputs of an input of a weight (out, in, ...), counted one by one."""
    of_output = sum(1 for index in np.ndindex(*shape) if index[0] == 0)
    of_input = sum(1 for index in np.ndindex(*shape) if index[1] == 0)
    return of_output, of_input


def has_the_spread(
    fill: Callable[..., Tensor], shape: tuple[int, ...], std: float, *, uniform: bool, mean: float = 0.0
) -> None:
    """Mean and deviation are within five standard errors, and a uniform one keeps to its bound."""
    parameter = Parameter(on_device(np.full(shape, np.nan)))
    array = parameter.data
    assert fill(parameter, rng=np.random.default_rng(0)) is parameter and parameter.data is array
    x = to_host(array) - mean
    assert abs(x.mean()) <= 5 * std / np.sqrt(x.size), f"the mean is {x.mean()}"
    assert abs(x.std() / std - 1) <= 5 / np.sqrt(x.size), f"the deviation is {x.std()}, and {std} is right"
    largest = abs(x).max() / std
    assert 0.98 * np.sqrt(3) < largest <= np.sqrt(3) if uniform else largest > 2, f"{largest} deviations"
    again = fill(Parameter(on_device(np.zeros(shape))), rng=np.random.default_rng(0))
    assert to_host(again.data).tobytes() == to_host(array).tobytes(), "another generator was asked, too"


def xavier_is_by_the_book(init: Any, shape: tuple[int, ...], gain: float) -> None:
    std = gain * (2 / sum(fans(shape))) ** 0.5
    has_the_spread(lambda p, rng: init.xavier_normal_(p, gain, rng=rng), shape, std, uniform=False)
    has_the_spread(lambda p, rng: init.xavier_uniform_(p, gain, rng=rng), shape, std, uniform=True)


def kaiming_is_by_the_book(init: Any, shape: tuple[int, ...], mode: str, name: str, a: float) -> None:
    gain = {"relu": 2**0.5, "tanh": 5 / 3, "linear": 1.0, "leaky_relu": (2 / (1 + a**2)) ** 0.5}[name]
    std = gain / fans(shape)[mode == "fan_out"] ** 0.5
    settings = {"a": a, "mode": mode, "nonlinearity": name}
    has_the_spread(lambda p, rng: init.kaiming_normal_(p, **settings, rng=rng), shape, std, uniform=False)
    has_the_spread(lambda p, rng: init.kaiming_uniform_(p, **settings, rng=rng), shape, std, uniform=True)
