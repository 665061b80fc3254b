"""A penalty that a layer adds to the loss, carried by the layer's value.

Lecture section: back-propagation. Lesson: 18_experts.

>>> from minigrad import ops
>>> ops.with_penalty([1.0, 2.0], ops.mean([3.0]), weight=0.1).data.tolist()
[1.0, 2.0]
"""

from __future__ import annotations

from ..device import Array, array_module
from ..op import op
from ..pullback import OpResult


@op
def with_penalty(x: Array, penalty: Array, *, weight: float) -> OpResult:
    """x, unchanged, whose loss has ``weight`` times the scalar ``penalty`` as a further term.

    Its gradient is ``weight`` whatever becomes of x, so that x carries it to any loss, through stages,
    micro-batches and segments that run again; an x on which no loss depends carries it nowhere. Who reports
    the loss adds the value.
    """
    dtype = penalty.dtype
    return x, (lambda g: g, lambda g: array_module(g).full((), weight, dtype))
