"""The normal distribution function, which NumPy lacks, as it lacks erf.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``ops/activation.py``.
"""

from __future__ import annotations

import math

from .device import Array, array_module

SINGLE = 3.75, (
    0.750294068, -0.588188342, 0.35293993, -0.151519543, 0.0374904822, 0.00119289046, -0.00416790266,
    0.000521626436, 0.000450086499,
)  # fmt: skip
DOUBLE = 5.25, (
    0.77162642395327517, -0.675853369880384601, 0.516411639170011368, -0.341150219287901444,
    0.191695931250026811, -0.0889466384366459421, 0.0320941061193393405, -0.00766218821423661871,
    0.000334922622641113114, 0.000594068340269916557, -0.000216095899258977583, -6.98886230085157974e-6,
    0.0000267193642524912903, -4.33451632677337963e-6, -2.77486241634844715e-6, 9.47393655061388034e-7,
    3.04863946974964696e-7, -1.53931181727446267e-7, -4.25013787140938163e-8, 1.76644994396454367e-8,
    6.18900726878229523e-9,
)  # fmt: skip
"""A number k and coefficients c; the polynomial's relative error is 2e-8 or 2e-16."""


def normal_distribution(x: Array) -> Array:
    """erfc(-x / sqrt(2)) / 2.

    At -z, z = |x|, it is exp(-z^2 / 2) t (c0 + c1 s + c2 s^2 + ...), where t = 1 / (z + k) and s = 1 - 2 k t.
    The polynomial, as that of Shepherd and Laframboise 1981, was fitted at Chebyshev's points. So the tail
    keeps its digits. The error is a few eps (1 + x^2) of the value, as by a rounding of x.
    """
    xp, (k, coefficients) = array_module(x), SINGLE if x.dtype.itemsize <= 4 else DOUBLE
    t = 1 / (abs(x) + k)
    s = 1 - 2 * k * t
    p = coefficients[-1]
    for c in coefficients[-2::-1]:
        p = p * s + c
    tail = p * t * xp.exp(x * x * -0.5)
    return xp.where(x > 0, 1 - tail, tail)


def normal_density(x: Array) -> Array:
    """exp(-x^2 / 2) / sqrt(2 pi)."""
    return array_module(x).exp(x * x * -0.5) * (1 / math.sqrt(2 * math.pi))
