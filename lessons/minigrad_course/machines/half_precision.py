"""What sixteen bits lose, hold and sum up, by closed formulas.

Lecture section: back-propagation. Lesson: 19_sixteen_bits. Goldberg 1991; Micikevicius et al. 2018,
section 3; Rajbhandari et al. 2020 (ZeRO), section 3.1. Rounding to float16 changes a normal number by at most
a share of it, the unit roundoff u = 2^-11.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

NORMAL, LEAST = -14, -24  # the exponents of the least normal and of the least positive float16 number
END = 16  # float16 numbers are below 2^16
UNIT_ROUNDOFF = 2.0**-11


def hole(x: float) -> float:
    """The distance from x, a positive float16 number, to the next larger one; from 65504 to 2^16."""
    exponent = math.frexp(x)[1] - 1
    return 2.0 ** max(exponent - 10, LEAST)


def lost_shares(gradients: Iterable[np.ndarray], seed: float) -> tuple[float, float]:
    """The shares of ``seed`` times the gradients that are below 2^-14, and that float16 rounds to 0.

    Gradients that are 0 do not count. The least number is 2^-24, and half of it is rounded to 0.
    """
    sizes = np.concatenate([np.abs(g[g != 0]).astype(np.float64) for g in gradients]) * seed
    return float(np.mean(sizes < 2.0**NORMAL)), float(np.mean(sizes <= 2.0 ** (LEAST - 1)))


def sum_error_bound(ranks: int, sizes: np.ndarray) -> np.ndarray:
    """The largest error of a float16 sum over ranks, in any order, where ``sizes`` are the sums of |x|.

    Each of p - 1 additions changes its result by a factor of at most 1 + u. Subnormal results are exact: they
    are multiples of 2^-24, as their terms are.
    """
    return ((1 + UNIT_ROUNDOFF) ** (ranks - 1) - 1) * sizes


def scale_path(exponents: Sequence[int], start: int, interval: int) -> tuple[list[int], list[bool]]:
    """The exponent of a dynamic loss scale after each step, and which steps are taken.

    The largest gradient of a step is 2^a without the scale, and with the scale 2^k it is infinite in float16
    from a + k = 16 on. Then the step is left out and the scale is halved; it is doubled after ``interval``
    steps in a row that were taken.
    """
    k, good, path, taken = start, 0, [], []
    for a in exponents:
        taken.append(a + k < END)
        good = good + 1 if taken[-1] else 0
        if not taken[-1]:
            k -= 1
        elif good == interval:
            k, good = k + 1, 0
        path.append(k)
    return path, taken


def bytes_of_a_parameter(itemsize: int, moments: int = 2, ranks: int = 1, stage: int = 0) -> float:
    """Bytes that a rank holds for a parameter: itself, its gradient, and the optimizer's float32 numbers.

    These are ``moments``, 2 for Adam, and a copy of the parameter if that has an ``itemsize`` of 2 bytes.
    ZeRO's ``stage`` 1 shares the optimizer's numbers among the ranks, 2 the gradients too, and 3 all.
    """
    optimizer = 4 * moments + (4 if itemsize < 4 else 0)
    parts = (optimizer, itemsize, itemsize)  # in the order in which the stages share them
    return sum(part / ranks if i < stage else part for i, part in enumerate(parts))
