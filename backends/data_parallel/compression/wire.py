"""What compressed gradients look like on the wire: arrays of several kinds as the bytes of one message.

Lecture section: gradient compression. Lesson: 10_gradient_compression.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minigrad.device import Array, array_module


def packed(*arrays: Array) -> Array:
    """The arrays' bytes, end to end, as one uint8 vector; those with the larger elements must come first."""
    xp = array_module(arrays[0])
    return xp.concatenate([xp.ascontiguousarray(a).reshape(-1).view(np.uint8) for a in arrays])


def unpacked(message: Array, *kinds: tuple[Any, int]) -> list[Array]:
    """The arrays of ``packed``, each a (dtype, number of elements), as views of ``message``."""
    found, start = [], 0
    for dtype, count in kinds:
        stop = start + np.dtype(dtype).itemsize * count
        found.append(message[start:stop].view(dtype))
        start = stop
    return found


def packed_codes(codes: Array, bits: int) -> Array:
    """Whole numbers from 0 to 2^bits - 1 in ``bits`` bits each: ceil(n bits / 8) bytes, uint8.

    First the lowest bit of all numbers, then the next one: so each pass goes through memory in order.
    """
    xp = array_module(codes)
    if bits == 1:
        return xp.packbits(codes.astype(bool))
    codes = codes.astype(np.uint8 if bits <= 8 else np.int32)
    return xp.packbits(xp.stack([((codes >> bit) & 1).astype(bool) for bit in range(bits)]))


def unpacked_codes(message: Array, bits: int, count: int) -> Array:
    """The ``count`` whole numbers of ``packed_codes``."""
    xp = array_module(message)
    found = xp.unpackbits(message)[: count * bits]
    if bits == 1:
        return found
    codes = xp.zeros(count, np.int32)
    for plane in found.reshape(bits, count)[::-1]:
        codes <<= 1
        codes |= plane
    return codes


def code_bytes(count: int, bits: int) -> int:
    """The bytes of ``packed_codes`` for ``count`` numbers."""
    return -(-count * bits // 8)
