"""Forms of ops that are faster than the readable ones, which stand a folder above and do without these.

Each file is named like the readable one that it joins, or one of its ops, and imports it; see
``minigrad.faster``. With the environment variable MINIGRAD_OPS=readable none of them is imported.
Lecture section: back-propagation. Lesson: 02_backpropagation, by ``__init__.py``.
"""

from . import (
    activation,
    adaptive_pool,
    batch_norm,
    conv,
    conv_pool,
    elementwise,
    gather,
    group_norm,
    interpolate,
    layer_norm,
    linear,
    loss,
    order,
    pool,
    reduce,
    regression_loss,
    scan,
    softmax,
)

__all__ = [
    "activation",
    "adaptive_pool",
    "batch_norm",
    "conv",
    "conv_pool",
    "elementwise",
    "gather",
    "group_norm",
    "interpolate",
    "layer_norm",
    "linear",
    "loss",
    "order",
    "pool",
    "reduce",
    "regression_loss",
    "scan",
    "softmax",
]
