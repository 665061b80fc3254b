"""The differentiable functions: each returns its value and one pullback per input.

Lecture section: back-propagation. Lesson: 02_backpropagation.
"""

from .adaptive_pool import adaptive_avg_pool2d, adaptive_max_pool2d
from .conv import conv2d
from .conv1d import conv1d
from .conv_transpose import conv_transpose2d
from .dropout import dropout
from .elementwise import (
    abs,
    add,
    clip,
    divide,
    exp,
    gelu,
    leaky_relu,
    log,
    maximum,
    minimum,
    multiply,
    negative,
    power,
    relu,
    sigmoid,
    sqrt,
    subtract,
    tanh,
    where,
)
from .group_norm import group_norm, instance_norm
from .interpolate import interpolate
from .linear import embedding, linear, matmul
from .loss import binary_cross_entropy_with_logits, cross_entropy, mse
from .norm import batch_norm, layer_norm
from .pool import avg_pool2d, max_pool2d
from .reduce import log_softmax, logsumexp, max, mean, min, softmax, sum, var
from .rms_norm import rms_norm
from .shape import (
    broadcast_to,
    concatenate,
    expand_dims,
    flatten,
    getitem,
    pad,
    reshape,
    split,
    squeeze,
    stack,
    transpose,
)

__all__ = [
    "abs", "adaptive_avg_pool2d", "adaptive_max_pool2d", "add", "avg_pool2d", "batch_norm",
    "binary_cross_entropy_with_logits", "broadcast_to", "clip", "concatenate", "conv1d", "conv2d",
    "conv_transpose2d", "cross_entropy", "divide", "dropout", "embedding", "exp", "expand_dims", "flatten",
    "gelu", "getitem", "group_norm", "instance_norm", "interpolate", "layer_norm", "leaky_relu", "linear",
    "log", "log_softmax", "logsumexp", "matmul", "max", "max_pool2d", "maximum", "mean", "min", "minimum",
    "mse", "multiply", "negative", "pad", "power", "relu", "reshape", "rms_norm", "sigmoid", "softmax",
    "split", "sqrt", "squeeze", "stack", "subtract", "sum", "tanh", "transpose", "var", "where",
]  # fmt: skip
