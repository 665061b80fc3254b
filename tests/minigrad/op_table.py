"""Every op, one line each: its name, itself, and what it is drawn. The laws run over this table."""

from collections.abc import Callable
from typing import Any, NamedTuple

import hypothesis.strategies as st
import numpy as np
from hypothesis.strategies import SearchStrategy

from minigrad import Tensor, ops
from minigrad.testing import on_device
from tests.minigrad.op_inputs import (
    LAYER,
    MATRICES,
    NORM,
    NORM_IMAGES,
    NORM_LAST,
    ROWS,
    Drawn,
    a_flag,
    an_axis,
    an_order,
    another_shape,
    any_index,
    broadcast,
    concatenation,
    distinct,
    even_twentieths,
    far_from_zero,
    labelled,
    looked_up,
    normal,
    odd_twentieths,
    of_shape,
    one,
    one_of,
    positive,
    some_axes,
    truth,
    twins,
    windows,
)


class Case(NamedTuple):
    name: str
    op: Callable[..., Any]
    inputs: SearchStrategy[Drawn]

    def draw(self, data: st.DataObject) -> tuple[Callable[..., Any], list[Any]]:
        """The op with its settings, and its inputs."""
        inputs, settings = data.draw(self.inputs)
        return (lambda *xs: self.op(*xs, **settings)), inputs


def positive_part(x):
    return ops.where(Tensor(x).data > 0, x, 0.0)


def dropout(x, *, p, seed):
    return ops.dropout(x, p=p, rng=np.random.default_rng(seed))


def normalise_fixed(x, weight, bias):
    channels = on_device(np.arange(x.shape[1]) - 0.5)
    return ops.batch_norm(
        x, weight, bias, statistics=(channels.astype(x.dtype), (channels**2).astype(x.dtype))
    )


def halves(x, *, axis):
    """The pieces of a split, put together again the other way round."""
    first, second = ops.split(x, sections=[x.shape[axis] // 2], axis=axis)
    return ops.concatenate(second * 2.0, first, axis=axis)


TABLE = [
    Case("add", ops.add, broadcast(normal, normal)),
    Case("subtract", ops.subtract, broadcast(normal, normal)),
    Case("multiply", ops.multiply, broadcast(normal, normal)),
    Case("divide", ops.divide, broadcast(normal, far_from_zero)),
    Case("power", ops.power, broadcast(positive, normal)),
    Case("power_of_two", lambda x: ops.power(x, 2), one()),
    Case("power_of_minus_one", lambda x: ops.power(x, -1.0), one(far_from_zero)),
    Case("two_to_the_power", lambda x: ops.power(2.0, x), one()),
    Case("maximum", ops.maximum, broadcast(odd_twentieths, even_twentieths)),
    Case("minimum", ops.minimum, broadcast(odd_twentieths, even_twentieths)),
    Case("maximum_with_number", lambda x: ops.maximum(x, 0.5), one(even_twentieths)),
    Case("where", ops.where, broadcast(truth, normal, normal)),
    Case("where_with_number", positive_part, one(odd_twentieths)),
    Case("negative", ops.negative, one()),
    Case("abs", ops.abs, one(odd_twentieths)),
    Case("exp", ops.exp, one()),
    Case("log", ops.log, one(positive)),
    Case("sqrt", ops.sqrt, one(positive)),
    Case("tanh", ops.tanh, one()),
    Case("sigmoid", ops.sigmoid, one()),
    Case("relu", ops.relu, one(odd_twentieths)),
    Case("leaky_relu", ops.leaky_relu, one(odd_twentieths, slope=one_of(0.2))),
    Case("gelu", ops.gelu, one()),
    Case("clip", ops.clip, one(odd_twentieths, low=one_of(None, -1.0), high=one_of(0.5))),
    Case("sum", ops.sum, one(axis=some_axes, keepdims=a_flag)),
    Case("mean", ops.mean, one(min_side=1, axis=some_axes, keepdims=a_flag)),
    Case("max", ops.max, one(distinct, min_side=1, axis=some_axes, keepdims=a_flag)),
    Case("min", ops.min, one(distinct, min_side=1, axis=some_axes, keepdims=a_flag)),
    Case("var", ops.var, one(min_side=1, axis=some_axes, keepdims=a_flag)),
    Case("logsumexp", ops.logsumexp, one(min_side=1, axis=some_axes, keepdims=a_flag)),
    Case("softmax", ops.softmax, one(min_side=1, min_dims=1, axis=an_axis)),
    Case("log_softmax", ops.log_softmax, one(min_side=1, min_dims=1, axis=an_axis)),
    Case("reshape", ops.reshape, one(shape=another_shape)),
    Case("flatten", ops.flatten, one(start_axis=lambda s: st.integers(0, max(len(s) - 1, 0)))),
    Case("transpose", ops.transpose, one(axes=an_order)),
    Case("broadcast_to", ops.broadcast_to, one(shape=lambda s: st.sampled_from([(2, *s), (3, 1, *s), s]))),
    Case("squeeze", ops.squeeze, one()),
    Case("squeeze_axis", ops.squeeze, of_shape(st.just([(3, 1, 2)]), normal, axis=one_of(1, -2))),
    Case("expand_dims", ops.expand_dims, one(axis=lambda s: st.integers(-1, len(s)) | st.just((0, -1)))),
    Case("getitem", ops.getitem, one(index=any_index)),
    Case("pad", ops.pad, one(width=lambda s: st.integers(0, 2) | st.just([(i, 1) for i in range(len(s))]))),
    Case("concatenate", ops.concatenate, concatenation(ops.concatenate)),
    Case("stack", ops.stack, concatenation(ops.stack)),
    Case("split", halves, one(min_dims=1, axis=an_axis)),
    Case("matmul", ops.matmul, of_shape(MATRICES, normal, normal)),
    Case("linear", ops.linear, of_shape(LAYER.map(lambda s: s[:2]), normal, normal)),
    Case("linear_bias", ops.linear, of_shape(LAYER, normal, normal, normal)),
    Case("embedding", ops.embedding, of_shape(ROWS.map(lambda s: [s[1:]]), normal).flatmap(looked_up)),
    Case("cross_entropy", ops.cross_entropy, of_shape(ROWS.map(lambda s: [s[:2]]), normal).flatmap(labelled)),
    Case("mse", ops.mse, twins(normal, normal)),
    Case("binary_cross_entropy_with_logits", ops.binary_cross_entropy_with_logits, twins(normal, positive)),
    Case("batch_norm", ops.batch_norm, of_shape(NORM, distinct, normal, normal)),
    Case("batch_norm_images", ops.batch_norm, of_shape(NORM_IMAGES, distinct, normal, normal)),
    Case("batch_norm_fixed", normalise_fixed, of_shape(NORM, normal, normal, normal)),
    Case("layer_norm", ops.layer_norm, of_shape(NORM_LAST, distinct, normal, normal)),
    Case("dropout", dropout, one(p=one_of(0, 0.5, 0.9), seed=one_of(*range(9)))),
    Case("conv2d", ops.conv2d, windows(2)),
    Case("conv2d_bias", ops.conv2d, windows(3)),
    Case("max_pool2d", ops.max_pool2d, windows(1, distinct)),
    Case("avg_pool2d", ops.avg_pool2d, windows(1)),
]  # fmt: skip
