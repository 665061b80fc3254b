"""Random numbers on the device. CuPy's Generator has no normal, choice, permutation and shuffle."""

from collections.abc import Callable
from typing import Any

import numpy as np

from . import _memory
from ._capture import kernel
from ._counts import note

DISTRIBUTIONS = {
    *(
        "beta",
        "binomial",
        "chisquare",
        "dirichlet",
        "exponential",
        "f",
        "gamma",
        "geometric",
        "hypergeometric",
    ),
    *("integers", "logseries", "poisson", "power", "standard_exponential", "standard_gamma"),
    *("standard_normal", "uniform"),
}


class Generator:
    def __init__(self, bits: Any) -> None:
        self._generator = np.random.default_rng(bits.seed)

    @kernel
    def random(self, size: Any = None, dtype: Any = np.float64, out: Any = None) -> Any:
        note("launch")
        return _memory.result(self._generator.random(size, dtype=dtype))

    def __getattr__(self, name: str) -> Callable:
        if name not in DISTRIBUTIONS:
            raise AttributeError(f"cupy.random.Generator has no {name}")

        def draw(*args: Any, **settings: Any) -> Any:
            note("launch")
            return _memory.result(getattr(self._generator, name)(*args, **settings))

        return draw


class Philox4x3210:
    """A seed, from which CuPy makes the states of many threads."""

    def __init__(self, seed: Any = None) -> None:
        self.seed = seed


def default_rng(seed: Any = None) -> Generator:
    return seed if isinstance(seed, Generator) else Generator(Philox4x3210(seed))
