"""The product of two matrices: ``a @ b``, or by a handle of one's own of cuBLAS.

Lecture section: GPU against CPU. Lesson: 04_gpu, by ``im2col_kernels.py``.
"""

from __future__ import annotations

import numpy as np
from numpy import ndarray

from . import cublas
from .device import Array, array_module
from .half import in_single, rounded

LONG_ROW = 2048  # elements; a column times such a row is multiplied in 0.2 to 0.7 of the time of a product


def product(a: Array, b: Array, out: Array | None = None) -> Array:
    """a @ b, written into ``out`` where that is passed.

    On the host float16 is multiplied as float32 and the product rounded, as cuBLAS does it: NumPy has no BLAS
    for it. On a stream of its own, which may be captured in a CUDA graph, matrices are multiplied by
    ``cublas.product``: CuPy refuses to call cuBLAS while a stream is captured.
    """
    on_host = type(a) is ndarray
    if on_host and a.itemsize == 2 and a.dtype == b.dtype == np.float16:
        y = rounded(product(in_single(a), in_single(b)), np.float16)
        if out is None:
            return y
        out[...] = y
        return out
    if on_host and a.ndim == b.ndim == 2 and (out is None or out.flags.c_contiguous):
        if len(b) == 1 and a.shape[1] == 1 and b.shape[1] >= LONG_ROW:
            return np.multiply(a, b, out=out)
        return a.dot(b, out)  # 0.4 us less than matmul, which takes no BLAS for a column by a row either
    xp = array_module(a)
    if xp is not np and cublas.on_own_stream(xp) and cublas.are_matrices(a, b):
        return cublas.product(a, b, out)
    return a @ b if out is None else xp.matmul(a, b, out=out)
