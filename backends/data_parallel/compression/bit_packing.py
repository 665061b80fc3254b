"""Arrays of several dtypes as the bytes of one message, and small whole numbers in a few bits each.

Lecture section: gradient compression. Lesson: 10_gradient_compression, by ``quantization.py``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minigrad.device import Array, array_module


def pack_bytes(*arrays: Array) -> Array:
    """The bytes of the arrays, end to end, as one uint8 vector; arrays of larger elements must come first."""
    xp = array_module(arrays[0])
    return xp.concatenate([xp.ascontiguousarray(a).reshape(-1).view(np.uint8) for a in arrays])


def unpack_bytes(message: Array, *kinds: tuple[Any, int]) -> list[Array]:
    """The arrays of ``pack_bytes``, each a (dtype, number of elements), as views of ``message``."""
    arrays, start = [], 0
    for dtype, count in kinds:
        stop = start + np.dtype(dtype).itemsize * count
        arrays.append(message[start:stop].view(dtype))
        start = stop
    return arrays


def pack_bits(codes: Array, bits: int) -> Array:
    """Whole numbers from 0 to 2^bits - 1 in ``bits`` bits each: ceil(n bits / 8) bytes, uint8.

    First the lowest bit of all numbers, then the next one, so that each pass reads memory in order.
    """
    xp = array_module(codes)
    if bits == 1:
        return xp.packbits(codes.astype(bool))
    codes = codes.astype(np.uint8 if bits <= 8 else np.int32)
    return xp.packbits(xp.stack([((codes >> bit) & 1).astype(bool) for bit in range(bits)]))


def unpack_bits(message: Array, bits: int, count: int) -> Array:
    """The ``count`` whole numbers of ``pack_bits``."""
    xp = array_module(message)
    planes = xp.unpackbits(message)[: count * bits]
    if bits == 1:
        return planes
    codes = xp.zeros(count, np.int32)
    for plane in planes.reshape(bits, count)[::-1]:
        codes <<= 1
        codes |= plane
    return codes
