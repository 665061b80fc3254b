"""Forms of ops that are faster than the readable ones, which stand a folder above and do without these.

Each file is named like the readable one that it joins, or one of its ops, and imports it; see
``minigrad.faster``. With the environment variable MINIGRAD_OPS=readable none of them is imported.
Lecture section: back-propagation. Lesson: 02_backpropagation, by ``__init__.py``.
"""  # isort: skip_file

from . import (
    activation, adaptive_pool, attention, batch_norm, conv, conv_pool, cross_entropy, einsum, elementwise,
    gather, group_norm, interpolate, layer_norm, linear, loss, order, pool, reduce, scan, shape, softmax,
)  # fmt: skip

__all__ = [
    "activation", "adaptive_pool", "attention", "batch_norm", "conv", "conv_pool", "cross_entropy",
    "einsum", "elementwise", "gather", "group_norm", "interpolate", "layer_norm", "linear", "loss", "order",
    "pool", "reduce", "scan", "shape", "softmax",
]  # fmt: skip
