"""bfloat16: the first sixteen bits of a float32 number.

Lecture section: back-propagation. Lesson: 19_sixteen_bits.
"""

from __future__ import annotations

import numpy as np

from .device import Array, array_module


def rounded(x: Array) -> Array:
    """The bfloat16 numbers nearest to those of x, ties to even, as float32."""
    xp = array_module(x)
    x = xp.asarray(x, np.float32)
    bits = x.view(np.uint32)
    nearest = (bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return xp.where(xp.isnan(x), x, nearest.view(np.float32))
