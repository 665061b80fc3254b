"""A strict double of CuPy 14.2 that computes on the host: what fails on a GPU fails here. See ../README.md.

A numpy.ndarray gets in only through ``array``, ``asarray`` and the few other ways that CuPy has, and gets out
only through ``get``, ``asnumpy`` and ``item``. A name that CuPy lacks raises AttributeError; a name that only
the double lacks raises NotImplementedError.
"""

# ruff: noqa: F401 (the imports are the public names)

from typing import Any

import numpy as np
from numpy import (
    bool_,
    broadcast_shapes,
    can_cast,
    complex64,
    complex128,
    complexfloating,
    dtype,
    e,
    finfo,
    float16,
    float32,
    float64,
    floating,
    generic,
    iinfo,
    inexact,
    inf,
    int8,
    int16,
    int32,
    int64,
    intc,
    integer,
    intp,
    isscalar,
    issubdtype,
    nan,
    newaxis,
    number,
    pi,
    promote_types,
    signedinteger,
    uint8,
    uint16,
    uint32,
    uint64,
    uintp,
    unsignedinteger,
)

from . import cuda, lib, linalg, random
from ._array import ndarray
from ._creation import (
    arange,
    array,
    asanyarray,
    asarray,
    ascontiguousarray,
    asfortranarray,
    asnumpy,
    copy,
    copyto,
    empty,
    empty_like,
    full,
    full_like,
    ones,
    ones_like,
    zeros,
    zeros_like,
)
from ._kernels import ElementwiseKernel, ReductionKernel
from ._manipulation import (
    broadcast_to,
    concatenate,
    diagonal,
    expand_dims,
    may_share_memory,
    moveaxis,
    ndim,
    ravel,
    reshape,
    shape,
    shares_memory,
    size,
    split,
    squeeze,
    stack,
    swapaxes,
    tile,
    transpose,
)
from ._products import dot, matmul, tensordot, vdot
from ._raw import RawKernel, RawModule
from ._reductions import (
    all,
    amax,
    amin,
    any,
    argmax,
    argmin,
    cumprod,
    cumsum,
    max,
    mean,
    min,
    prod,
    std,
    sum,
    var,
)
from ._selection import (
    allclose,
    argpartition,
    argsort,
    array_equal,
    clip,
    diff,
    flatnonzero,
    iscomplexobj,
    nonzero,
    packbits,
    partition,
    repeat,
    result_type,
    round,
    searchsorted,
    sort,
    take,
    unpackbits,
    where,
)
from ._ufuncs import NAMES, UFUNCS, ufunc
from .cuda import MemoryPool, is_available

__version__ = "14.2.0"

globals().update(UFUNCS)


def get_array_module(*args: Any) -> Any:
    import cupy

    return cupy if [x for x in args if isinstance(x, ndarray)] else np


def get_default_memory_pool() -> MemoryPool:
    return cuda._default_pool


def get_default_pinned_memory_pool() -> MemoryPool:
    return MemoryPool()


def __getattr__(name: str) -> Any:
    if name.startswith("__") or name not in NAMES:
        raise AttributeError(f"module 'cupy' has no attribute {name!r}")
    raise NotImplementedError(f"CuPy has {name}; the double has not")
