"""Dropout (Srivastava et al. 2014). Lecture section: back-propagation. Lesson: 02_backpropagation.

>>> from minigrad import ops
>>> ops.dropout([1.0, 2.0], p=0.0, rng=np.random.default_rng(0)).data.tolist()
[1.0, 2.0]
"""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np

from ..half import in_single, is_half, rounded
from ..memory_order import in_memory_order
from ..op import Array, OpResult, array_module, op
from ..random_mask import Mask


@op
def dropout(x: Array, *, p: float, rng: np.random.Generator | Mask) -> OpResult:
    """x with each element zeroed with probability ``p``, the others divided by 1 - p.

    The mask is drawn on the host, so it is the same on every device. ``rng`` is a generator, or, as in the
    layer, a ``RandomMask``, which gives a sample the same mask on whatever rank it is.
    """
    check_probability(p)
    if rng is None or isinstance(rng, numbers.Number):  # a seed would give the same mask each time
        raise generator_needed("dropout", rng)
    keep = rng.random(x.shape) >= p if isinstance(rng, np.random.Generator) else rng.keep(x.shape, p)
    xp = array_module(x)
    mask = xp.empty_like(x, dtype=x.dtype if x.dtype.kind == "f" else float)  # in the memory order of x
    mask[...] = xp.asarray(keep)
    scale, half = np.float32(1 / (1 - p)), is_half(x)
    if not half:
        mask *= 1 / (1 - p)

    def product(x: Array, mask: Array) -> OpResult:
        times = (lambda a: rounded(in_single(a) * mask * scale, mask.dtype)) if half else lambda a: a * mask
        return times(x), (times, None)

    value, (to_x, _) = (product if xp is np else in_memory_order(product))(x, mask)
    return value, (to_x,)


def generator_needed(name: str, rng: Any) -> TypeError:
    """The error of an op or a layer whose ``rng`` is something else."""
    return TypeError(
        f"{name} needs a generator of random numbers, got rng={rng!r}; write "
        "rng = np.random.default_rng(0) once, and pass rng=rng to every layer"
    )


def check_probability(p: float) -> None:
    if not 0 <= p < 1:
        raise ValueError(f"dropout needs 0 <= p < 1, got {p}; p is the share that is dropped")
