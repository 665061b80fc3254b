"""Loops over the elements of arrays, compiled to machine code by Numba.

NumPy computes a normalisation in a dozen passes through memory, a loop in two or three: layer norm takes a
fifth of the time. So where an op needs several passes, ``ops`` has its readable form, as on the slide, and
``ops/fast`` one written as loops. They take arrays of the host, all of float32 or all of float64; the
readable form computes everything else: on GPUs, in other types, and where there is no Numba.

The only file that imports Numba, when the first op asks for loops, since it takes 0.3 s and 60 MB. Machine
code is stored in ``__pycache__`` beside its source, or where NUMBA_CACHE_DIR says, for other ranks and runs.
Lecture section: back-propagation. Lesson: 02_backpropagation, by ``fast/layer_norm.py``.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, wraps
from pathlib import Path
from types import FunctionType
from typing import Any
from zlib import crc32

import numpy as np


@dataclass(frozen=True)
class ScalarFunction:
    """A function of a number for loops, which becomes a part of them: they take several numbers at a time.

    ``for_dtype(dtype)`` is the function for numbers of the dtype of a loop's first array. It uses nothing but
    NumPy, its closure and other scalar functions.
    """

    for_dtype: Callable[[np.dtype[Any]], Callable[..., Any]]

    def __call__(self, x: Any) -> Any:
        return self.for_dtype(np.dtype(float))(x)


def compiled(function: Callable[..., None], exactly: bool = False) -> Callable[..., None]:
    """``function``, loops that read some arrays and write others, as machine code.

    It takes contiguous arrays in C order, Python's numbers and tuples of them, and uses nothing but these,
    NumPy, scalar functions, and constants of its closure or file. It is compiled at its first call for each
    combination of the arrays' dtypes. Sums may be added in another order, and a product and a sum rounded
    once, unless it is compiled ``exactly``: then it has the bits that NumPy's operations have. Ranks that are
    threads run it at the same time. The innermost loop should run over 50 elements or
    more, and its index stand alone in [i, j] or in a slice: with x[start + j] Numba asks whether the index is
    negative, which takes 8 times. An array that it writes is no part of one that it reads, neither a row of
    the same ``np.empty((2, n))``: else it takes one element at a time, 4 times as long.
    """
    forms: dict[str, Callable[..., None]] = {}

    @wraps(function)
    def run(*arguments: Any) -> None:
        dtypes = "".join([a.dtype.char for a in arguments if type(a) is np.ndarray])
        form = forms.get(dtypes)
        if form is None:
            form = forms[dtypes] = machine_code(function, dtypes, exactly)
        try:
            form(*arguments)
        except Exception:  # it could not be read from the disk or written to it; the loops raise nothing
            forms[dtypes] = machine_code(function, dtypes, exactly, stored=False)
            forms[dtypes](*arguments)

    return run


def machine_code(
    function: Callable[..., None], dtypes: str, exactly: bool = False, stored: bool = True
) -> Callable[..., None]:
    """``function``, under a name of its own for ``dtypes``: ranks that compile it at once store the same.

    Numba sees when the function's file has changed. The name has a checksum of this file and of the files of
    its scalar functions; code without a source file is not stored.
    """
    from numba import njit

    files = {machine_code.__code__.co_filename}

    def with_scalar_functions(function: Any) -> Any:
        code, every = function.__code__, function.__globals__
        # Numba never lets go of what refers to machine code, as other names of the module may.
        names = {name: every[name] for name in ("__name__", *code.co_names) if name in every}
        names["__builtins__"] = builtins
        for name in code.co_names:
            if isinstance(scalar := names.get(name), ScalarFunction):
                of_numbers = scalar.for_dtype(np.dtype(dtypes[0]))
                files.add(of_numbers.__code__.co_filename)
                inlined = njit(fastmath={"contract"}, error_model="numpy", forceinline=True)
                names[name] = inlined(with_scalar_functions(of_numbers))
        return FunctionType(code, names, function.__name__, None, function.__closure__)

    copy = with_scalar_functions(function)
    try:
        texts = b"".join([Path(file).read_bytes() for file in sorted(files)])
        copy.__qualname__ = f"{function.__qualname__}_{dtypes}_{crc32(texts):x}"
    except OSError:
        stored = False
    rules = False if exactly else {"reassoc", "contract"}
    compile = njit(nogil=True, fastmath=rules, error_model="numpy", cache=stored)
    try:
        return compile(copy)
    except RuntimeError:  # no folder can be written
        if not stored:
            raise
        return machine_code(function, dtypes, exactly, stored=False)


def can_take(*arrays: Any) -> bool:
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


def are_imported() -> bool:
    """Whether something has asked for Numba before, so that loops take neither its time nor its memory."""
    return "numba.core" in sys.modules


@cache
def problem() -> str | None:
    """Why loops cannot be compiled, with the way out; None where they can."""
    try:
        from numba import config
    except Exception as error:  # there is none, or it refuses this version of NumPy
        return f"Numba cannot be imported ({' '.join(str(error).split())}); pip install numba"
    disabled = config.DISABLE_JIT  # pyright: ignore[reportAttributeAccessIssue]
    return "NUMBA_DISABLE_JIT is set; unset it" if disabled else None
