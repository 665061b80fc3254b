"""NumPy's functions called with device arrays: CuPy's function of the same name answers, or none."""

import functools
import sys
from typing import Any

import numpy as np

from . import _array, _memory

COMPARISONS = (np.greater, np.greater_equal, np.less, np.less_equal, np.equal, np.not_equal)
METHODS = ("__call__", "outer", "at", "reduce", "accumulate", "reduceat")


def array_ufunc(self: Any, ufunc: np.ufunc, method: str, *inputs: Any, **settings: Any) -> Any:
    operands = inputs
    if "out" in settings:
        (settings["out"],) = settings["out"]
        operands += (settings["out"],)
    if method not in METHODS or not all(map(is_operand, operands)):
        return NotImplemented
    try:
        function = getattr(sys.modules["cupy"], ufunc.__name__)
        if method != "__call__":
            function = getattr(function, method)
    except AttributeError:
        return NotImplemented
    if ufunc in COMPARISONS:  # CuPy reads 0-d host arrays here, and only here
        inputs = tuple(x.item() if isinstance(x, np.ndarray) and x.ndim == 0 else x for x in inputs)
    return function(*inputs, **settings)


def is_operand(x: Any) -> bool:
    return type(x) in _memory.NUMBERS or isinstance(x, np.generic | np.ndarray | _array.ndarray)


def array_function(self: Any, function: Any, types: Any, args: Any, settings: Any) -> Any:
    try:
        module = functools.reduce(getattr, function.__module__.split(".")[1:], sys.modules["cupy"])
        own = getattr(module, function.__name__)
    except AttributeError:
        return NotImplemented
    if own is function or not all(issubclass(t, np.ndarray | _array.ndarray) for t in types):
        return NotImplemented
    return own(*args, **settings)
