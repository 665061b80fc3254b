"""The differentiable functions: each returns its value and one pullback per input.

Lecture section: back-propagation. Lesson: 02_backpropagation.
"""

from .conv import conv2d
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
from .linear import embedding, linear, matmul
from .loss import binary_cross_entropy_with_logits, cross_entropy, kl_div, nll_loss
from .norm import batch_norm, layer_norm
from .pool import avg_pool2d, max_pool2d
from .reduce import log_softmax, logsumexp, max, mean, min, softmax, sum, var
from .regression_loss import huber_loss, l1_loss, mse, smooth_l1_loss
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
    "abs", "add", "avg_pool2d", "batch_norm", "binary_cross_entropy_with_logits", "broadcast_to", "clip",
    "concatenate", "conv2d", "cross_entropy", "divide", "dropout", "embedding", "exp", "expand_dims",
    "flatten", "gelu", "getitem", "huber_loss", "kl_div", "l1_loss", "layer_norm", "leaky_relu", "linear",
    "log", "log_softmax", "logsumexp", "matmul", "max", "max_pool2d", "maximum", "mean", "min", "minimum",
    "mse", "multiply", "negative", "nll_loss", "pad", "power", "relu", "reshape", "sigmoid", "smooth_l1_loss",
    "softmax", "split", "sqrt", "squeeze", "stack", "subtract", "sum", "tanh", "transpose", "var", "where",
]  # fmt: skip
