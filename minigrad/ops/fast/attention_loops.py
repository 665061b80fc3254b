"""Softmax and its gradient of a tile of attention as loops, in place.

Lecture section: back-propagation. Lesson: 17_sequences.
"""

from __future__ import annotations

import numpy as np

from ... import loops
from ...device import Array
from .exponential import exp


@loops.compiled
def write_weights(s: Array, bits: Array, lse: Array) -> None:
    """The softmax of each row of s in its place, and the logarithm of its divisor, or 0 and -inf.

    ``bits`` are those of s, see ``softmax.write_softmax``.
    """
    rows, columns = s.shape
    positive, largest_bits = np.iinfo(bits.dtype).max, np.empty(1, bits.dtype)
    largest, e = largest_bits.view(s.dtype), np.empty(columns, s.dtype)
    for i in range(rows):
        most = ~positive
        for j in range(columns):
            b = bits[i, j]
            most = max(most, b if b >= 0 else b ^ positive)
        largest_bits[0] = most if most >= 0 else most ^ positive
        shift = largest[0]
        if shift == -np.inf:  # -inf - -inf would be NaN
            shift = s.dtype.type(0)
        for j in range(columns):
            s[i, j] -= shift
        for j in range(columns):
            e[j] = exp(s[i, j])
        total = 0.0
        for j in range(columns):
            total += e[j]
        factor = s.dtype.type(1 / total if total > 0 or total != total else 0.0)
        lse[i] = s.dtype.type(np.log(total) + shift)
        for j in range(columns):
            s[i, j] = e[j] * factor


@loops.compiled
def write_scores_gradient(p: Array, d: Array, lse: Array, delta: Array) -> None:
    """Scores p become the weights exp(p - lse), and gradients d of the weights those of the scores."""
    rows, columns = p.shape
    e = np.empty(columns, p.dtype)
    for i in range(rows):
        shift, mean = lse[i], delta[i]
        for j in range(columns):
            e[j] = exp(p[i, j] - shift)
        for j in range(columns):
            d[i, j] = e[j] * (d[i, j] - mean)
        for j in range(columns):
            p[i, j] = e[j]
