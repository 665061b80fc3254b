"""The differentiable functions: each returns its value and one pullback per input.

Lecture section: back-propagation. Lesson: 02_backpropagation.
"""

from .activation import elu, gelu, hardswish, log_sigmoid, silu, softplus
from .conv import conv2d
from .dropout import dropout
from .elementwise import (
    abs,
    add,
    astype,
    clip,
    cos,
    divide,
    exp,
    leaky_relu,
    log,
    maximum,
    minimum,
    multiply,
    negative,
    power,
    relu,
    sigmoid,
    sin,
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
    "abs", "add", "astype", "avg_pool2d", "batch_norm", "binary_cross_entropy_with_logits", "broadcast_to",
    "clip", "concatenate", "conv2d", "cos", "cross_entropy", "divide", "dropout", "elu", "embedding", "exp",
    "expand_dims", "flatten", "gelu", "getitem", "hardswish", "huber_loss", "kl_div", "l1_loss", "layer_norm",
    "leaky_relu", "linear", "log", "log_sigmoid", "log_softmax", "logsumexp", "matmul", "max", "max_pool2d",
    "maximum", "mean", "min", "minimum", "mse", "multiply", "negative", "nll_loss", "pad", "power", "relu",
    "reshape", "sigmoid", "silu", "sin", "smooth_l1_loss", "softmax", "softplus", "split", "sqrt", "squeeze",
    "stack", "subtract", "sum", "tanh", "transpose", "var", "where",
]  # fmt: skip
