"""Dropout (Srivastava et al. 2014)."""

from __future__ import annotations

import numpy as np

from ..device import Array, array_module
from ..op import Pulled, op


@op
def dropout(x: Array, *, p: float, rng: np.random.Generator) -> Pulled:
    """x with each element zeroed with probability ``p``, the others divided by 1 - p.

    The mask is drawn on the host from ``rng``, so it is the same on every device.
    """
    if not 0 <= p < 1:
        raise ValueError(f"dropout needs 0 <= p < 1, got {p}; p is the share that is dropped")
    kept = rng.random(x.shape) >= p
    mask = array_module(x).asarray(kept * (1 / (1 - p)), dtype=x.dtype)
    return x * mask, (lambda g: g * mask,)
