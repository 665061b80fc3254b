"""The differentiable functions: each returns its value and one pullback per input.

Lecture section: back-propagation. Lesson: 02_backpropagation.
"""

from .adaptive_pool import adaptive_avg_pool2d, adaptive_max_pool2d
from .conv import conv2d
from .conv1d import conv1d
from .conv_transpose import conv_transpose2d
from .dropout import dropout
from .einsum import einsum
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
from .gather import gather, scatter, scatter_add
from .group_norm import group_norm, instance_norm
from .interpolate import interpolate
from .linear import embedding, linear, matmul
from .loss import binary_cross_entropy_with_logits, cross_entropy, mse
from .mask import masked_fill, tril, triu
from .norm import batch_norm, layer_norm
from .order import argsort, sort, topk
from .pool import avg_pool2d, max_pool2d
from .reduce import log_softmax, logsumexp, max, mean, min, prod, softmax, std, sum, var
from .rms_norm import rms_norm
from .scan import cumprod, cumsum
from .shape import (
    broadcast_to,
    concatenate,
    diagonal,
    expand_dims,
    flatten,
    flip,
    getitem,
    pad,
    repeat,
    reshape,
    roll,
    split,
    squeeze,
    stack,
    tile,
    transpose,
)

__all__ = [
    "abs", "adaptive_avg_pool2d", "adaptive_max_pool2d", "add", "argsort", "avg_pool2d", "batch_norm",
    "binary_cross_entropy_with_logits", "broadcast_to", "clip", "concatenate", "conv1d", "conv2d",
    "conv_transpose2d", "cross_entropy", "cumprod", "cumsum", "diagonal", "divide", "dropout", "einsum",
    "embedding", "exp", "expand_dims", "flatten", "flip", "gather", "gelu", "getitem", "group_norm",
    "instance_norm", "interpolate", "layer_norm", "leaky_relu", "linear", "log", "log_softmax", "logsumexp",
    "masked_fill", "matmul", "max", "max_pool2d", "maximum", "mean", "min", "minimum", "mse", "multiply",
    "negative", "pad", "power", "prod", "relu", "repeat", "reshape", "rms_norm", "roll", "scatter",
    "scatter_add", "sigmoid", "softmax", "sort", "split", "sqrt", "squeeze", "stack", "std", "subtract",
    "sum", "tanh", "tile", "topk", "transpose", "tril", "triu", "var", "where",
]  # fmt: skip
