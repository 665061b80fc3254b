"""Loops over the elements of arrays, compiled to machine code by Numba.

NumPy computes a normalisation in a dozen passes through memory, a loop in two or three: layer norm takes a
fifth of the time. So where an op needs several passes, its readable form stands first, as on the slide, and
beside it one written as loops. They take arrays of the host, all of float32 or all of float64; the readable
form computes everything else: on GPUs, in other types, and where there is no Numba.

The only file that imports Numba, when the first op asks for loops, since it takes 0.3 s and 60 MB. Machine
code is stored in ``__pycache__`` beside its source, or where NUMBA_CACHE_DIR says, for other ranks and runs.
Lecture section: back-propagation. Lesson: 02_backpropagation, by ``ops/layer_norm.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from types import FunctionType
from typing import Any

import numpy as np


def compiled(function: Callable[..., None]) -> Callable[..., None]:
    """``function``, loops that read some arrays and write others, as machine code.

    It takes contiguous arrays in C order and Python's numbers, and uses nothing but them and NumPy: no other
    function, no constant of its module. It is compiled at its first call for each combination of the arrays'
    dtypes. Sums may be added in another order, and a product and a sum rounded once; ranks that are threads
    run it at the same time. The innermost loop should run over 50 elements or more, and its index stand alone
    in [i, j] or in a slice: with x[start + j] Numba asks whether the index is negative, which takes 8 times.
    """
    forms: dict[str, Callable[..., None]] = {}

    @wraps(function)
    def run(*arguments: Any) -> None:
        dtypes = "".join([a.dtype.char for a in arguments if type(a) is np.ndarray])
        form = forms.get(dtypes)
        if form is None:
            form = forms[dtypes] = machine_code(function, dtypes)
        try:
            form(*arguments)
        except Exception:  # it could not be read from the disk or written to it; the loops raise nothing
            forms[dtypes] = machine_code(function, dtypes, stored=False)
            forms[dtypes](*arguments)

    return run


def machine_code(function: Callable[..., None], dtypes: str, stored: bool = True) -> Callable[..., None]:
    """``function``, under a name of its own for ``dtypes``: ranks that compile it at once store the same."""
    from numba import njit

    copy = FunctionType(function.__code__, function.__globals__, function.__name__)  # pyright: ignore
    copy.__qualname__, copy.__module__ = f"{function.__qualname__}_{dtypes}", function.__module__
    compile = njit(nogil=True, fastmath={"reassoc", "contract"}, error_model="numpy", cache=stored)
    try:
        return compile(copy)
    except RuntimeError:  # no folder can be written
        if not stored:
            raise
        return machine_code(function, dtypes, stored=False)


def fit(*arrays: Any) -> bool:
    """Whether loops take these: arrays of the host, all of float32 or all of float64, the first not empty.

    False where there is no Numba.
    """
    first = arrays[0]
    if type(first) is not np.ndarray or first.dtype.char not in "fd" or not first.size:
        return False
    dtype = first.dtype
    return (
        dtype.isnative and all([type(a) is np.ndarray and a.dtype == dtype for a in arrays]) and available()
    )


def available() -> bool:
    """Whether loops can be compiled here."""
    return problem() is None


@cache
def problem() -> str | None:
    """Why loops cannot be compiled, with the way out; None where they can."""
    try:
        from numba import config
    except Exception as error:  # there is none, or it refuses this version of NumPy
        return f"Numba cannot be imported ({' '.join(str(error).split())}); pip install numba"
    disabled = config.DISABLE_JIT  # pyright: ignore[reportAttributeAccessIssue]
    return "NUMBA_DISABLE_JIT is set; unset it" if disabled else None
