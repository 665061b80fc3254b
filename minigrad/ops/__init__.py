"""The differentiable functions: each returns its value and one pullback per input.

This folder is what one reads: one file for each family. ``fast`` has faster forms, which ``faster`` joins.
Lecture section: back-propagation. Lesson: 02_backpropagation.
"""  # isort: skip_file

from .activation import elu, gelu, hardswish, log_sigmoid, silu, softplus
from .attention import attention, self_attention
from .batch_norm import batch_norm
from .conv import conv2d, conv_transpose2d
from .conv_pool import conv_pool2d
from .cross_entropy import cross_entropy, nll_loss
from .dropout import dropout
from .einsum import einsum
from .elementwise import (
    abs, add, astype, clip, cos, divide, exp, leaky_relu, log, masked_fill, maximum, minimum, multiply,
    negative, power, relu, sigmoid, sin, sqrt, subtract, tanh, tril, triu, where,
)  # fmt: skip
from .gather import gather, scatter, scatter_add, scatter_reduce, segment_sum
from .grouped_linear import grouped_linear
from .group_norm import group_norm, instance_norm
from .layer_norm import layer_norm, rms_norm
from .linear import embedding, linear, matmul
from .loss import binary_cross_entropy_with_logits, huber_loss, kl_div, l1_loss, mse, smooth_l1_loss
from .order import argsort, sort, topk
from .penalty import with_penalty
from .pool import avg_pool2d, max_pool2d
from .reduce import max, mean, min, prod, std, sum, var
from .resize import adaptive_avg_pool2d, adaptive_max_pool2d, interpolate
from .scan import cumprod, cumsum
from .shape import (
    broadcast_to, concatenate, diagonal, expand_dims, flatten, flip, getitem, pad, repeat, reshape, roll,
    split, squeeze, stack, tile, transpose,
)  # fmt: skip
from .signals import avg_pool1d, conv1d, conv_transpose1d, max_pool1d
from .softmax import log_softmax, logsumexp, softmax

__all__ = [
    "abs", "adaptive_avg_pool2d", "adaptive_max_pool2d", "add", "argsort", "astype", "attention",
    "avg_pool1d", "avg_pool2d", "batch_norm", "binary_cross_entropy_with_logits", "broadcast_to", "clip",
    "concatenate", "conv1d", "conv2d", "conv_pool2d", "conv_transpose1d", "conv_transpose2d", "cos",
    "cross_entropy", "cumprod", "cumsum", "diagonal", "divide", "dropout", "einsum", "elu", "embedding",
    "exp", "expand_dims", "flatten", "flip", "gather", "gelu", "getitem", "group_norm", "grouped_linear",
    "hardswish", "huber_loss", "instance_norm", "interpolate", "kl_div", "l1_loss", "layer_norm",
    "leaky_relu", "linear", "log", "log_sigmoid", "log_softmax", "logsumexp", "masked_fill", "matmul", "max",
    "max_pool1d", "max_pool2d", "maximum", "mean", "min", "minimum", "mse", "multiply", "negative",
    "nll_loss", "pad", "power", "prod", "relu", "repeat", "reshape", "rms_norm", "roll", "scatter",
    "scatter_add", "scatter_reduce", "segment_sum", "self_attention", "sigmoid", "silu", "sin",
    "smooth_l1_loss", "softmax", "softplus", "sort", "split", "sqrt", "squeeze", "stack", "std", "subtract",
    "sum", "tanh", "tile", "topk", "transpose", "tril", "triu", "var", "where", "with_penalty",
]  # fmt: skip
