"""Every op, one line each: its name, itself, and what it is drawn. The laws run over this table."""

from collections.abc import Callable
from typing import Any, NamedTuple

import hypothesis.strategies as st
import numpy as np
from hypothesis.strategies import SearchStrategy

from minigrad import Tensor, ops
from minigrad.testing import on_device
from tests.minigrad.ops.op_inputs import (
    IMAGE,
    LAYER,
    LAYERS,
    MATRICES,
    NORM,
    NORM_GROUPS,
    NORM_IMAGES,
    NORM_LAST,
    PIXELS,
    ROWS,
    Drawn,
    a_flag,
    a_size,
    an_axis,
    an_order,
    another_shape,
    any_index,
    attention_inputs,
    broadcast,
    class_weights,
    concatenation,
    contractions,
    distinct,
    even_twentieths,
    far_from_zero,
    far_odd_twentieths,
    in_groups,
    indexed,
    into_segments,
    labelled,
    looked_up,
    normal,
    odd_twentieths,
    of_shape,
    one,
    one_of,
    pooled_signals,
    pooled_windows,
    positive,
    reductions,
    reductions_at_places,
    shapes,
    signals,
    some_axes,
    transposed_signals,
    transposed_windows,
    truth,
    twins,
    windows,
    with_label_options,
    with_zeros,
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


def carrying_penalty(x, y):
    """x with a penalty that weighs nothing, as differences of the value alone see it."""
    return ops.with_penalty(x, ops.mean(y), weight=0.0)


def dropout(x, *, p, seed):
    return ops.dropout(x, p=p, rng=np.random.default_rng(seed))


def normalise_fixed(x, weight, bias):
    channels = on_device(np.arange(x.shape[1]) - 0.5)
    return ops.batch_norm(
        x, weight, bias, statistics=(channels.astype(x.dtype), (channels**2).astype(x.dtype))
    )


def soft_cross_entropy(x, p, **settings):
    """Cross-entropy with probabilities along axis 1."""
    return ops.cross_entropy(x, ops.softmax(p, axis=1), **settings)


def nll_loss(x, labels, *, label_smoothing, **settings):
    return ops.nll_loss(x, labels, **settings)


def halves(x, *, axis):
    """The pieces of a split, put together again the other way round."""
    first, second = ops.split(x, sections=[x.shape[axis] // 2], axis=axis)
    return ops.concatenate(second * 2.0, first, axis=axis)


def einsum(*operands, subscripts):
    return ops.einsum(subscripts, *operands)


def largest(x, **settings):
    return ops.topk(x, **settings)[0]


def its_axis(shape):
    """One along which there are 3."""
    return st.sampled_from([0, -1, None] if len(shape) == 1 else [shape.index(3)])


CUBES = shapes(min_dims=3).map(lambda s: [s])
THREES = st.sampled_from([[(3,)], [(3, 2)], [(2, 3)]])
MASKED = shapes().map(lambda s: [s, s[1:]])
CONSTANTS = {"argsort"}  # integers

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
    Case("gelu", ops.gelu, one(approximate=one_of("none", "tanh"))),
    Case("silu", ops.silu, one()),
    Case("softplus", ops.softplus, one(beta=one_of(1.0, 2.5))),
    Case("log_sigmoid", ops.log_sigmoid, one()),
    Case("elu", ops.elu, one(odd_twentieths, alpha=one_of(1.0, 0.3, -2.0))),
    Case("hardswish", ops.hardswish, one(far_odd_twentieths)),
    Case("sin", ops.sin, one()),
    Case("cos", ops.cos, one()),
    Case("astype", lambda x: ops.astype(x, dtype=Tensor(x).dtype), one()),
    Case("clip", ops.clip, one(odd_twentieths, low=one_of(None, -1.0), high=one_of(0.5))),
    Case("sum", ops.sum, one(axis=some_axes, keepdims=a_flag)),
    Case("mean", ops.mean, one(min_side=1, axis=some_axes, keepdims=a_flag)),
    Case("max", ops.max, one(distinct, min_side=1, axis=some_axes, keepdims=a_flag)),
    Case("min", ops.min, one(distinct, min_side=1, axis=some_axes, keepdims=a_flag)),
    Case("var", ops.var, one(min_side=1, axis=some_axes, keepdims=a_flag)),
    Case("var_ddof", ops.var, one(min_side=2, min_dims=1, axis=an_axis, ddof=one_of(1, 0.5))),
    Case("std", ops.std, one(distinct, 2, 1, axis=some_axes, keepdims=a_flag, ddof=one_of(0, 1))),
    Case("prod", ops.prod, one(with_zeros, axis=some_axes, keepdims=a_flag)),
    Case("cumsum", ops.cumsum, one(axis=an_axis)),
    Case("cumprod", ops.cumprod, one(with_zeros, axis=an_axis)),
    Case("sort", ops.sort, one(distinct, axis=an_axis, descending=a_flag)),
    Case("topk", largest, one(distinct, 2, 1, axis=an_axis, k=one_of(1, 2), largest=a_flag)),
    Case("gather", ops.gather, one().flatmap(indexed())),
    Case("scatter", ops.scatter, one().flatmap(indexed(normal))),
    Case("scatter_add", ops.scatter_add, one().flatmap(indexed(normal))),
    Case("scatter_reduce", ops.scatter_reduce, reductions_at_places()),
    Case("segment_sum", ops.segment_sum,
         of_shape(ROWS.map(lambda s: [s[1:]]), normal).flatmap(into_segments)),
    Case("logsumexp", ops.logsumexp, one(min_side=1, axis=some_axes, keepdims=a_flag)),
    Case("softmax", ops.softmax, one(min_side=1, axis=an_axis)),
    Case("log_softmax", ops.log_softmax, one(min_side=1, axis=an_axis)),
    Case("reshape", ops.reshape, one(shape=another_shape)),
    Case("flatten", ops.flatten, one(start_axis=lambda s: st.integers(0, len(s) // 2),
         end_axis=lambda s: st.integers(len(s) // 2, max(len(s) - 1, 0)) | st.just(-1))),
    Case("transpose", ops.transpose, one(axes=an_order)),
    Case("broadcast_to", ops.broadcast_to, one(shape=lambda s: st.sampled_from([(2, *s), (3, 1, *s), s]))),
    Case("squeeze", ops.squeeze, one()),
    Case("squeeze_axis", ops.squeeze, of_shape(st.just([(3, 1, 2)]), normal, axis=one_of(1, -2))),
    Case("expand_dims", ops.expand_dims, one(axis=lambda s: st.integers(-1, len(s)) | st.just((0, -1)))),
    Case("getitem", ops.getitem, one(index=any_index)),
    Case("pad", ops.pad, one(width=lambda s: st.integers(0, 2) | st.just([(i, 1) for i in range(len(s))]))),
    Case("pad_with_its_own", ops.pad, of_shape(THREES, normal, width=lambda s: st.just([(2, 1)] * len(s)),
         mode=one_of("reflect", "edge", "wrap"))),
    Case("flip", ops.flip, one(axis=some_axes)),
    Case("roll", ops.roll, one(axis=some_axes, shift=lambda s: st.integers(-5, 5))),
    Case("repeat", ops.repeat, of_shape(THREES, normal, axis=its_axis, repeats=one_of(0, 2, [0, 1, 3]))),
    Case("tile", ops.tile, one(reps=one_of(0, 2, (2, 1), (3, 1, 2)))),
    Case("diagonal", ops.diagonal, of_shape(CUBES, normal, offset=one_of(-1, 0, 2), axis2=one_of(1, -1))),
    Case("tril", ops.tril, of_shape(CUBES, normal, k=one_of(-1, 0, 2))),
    Case("triu", ops.triu, of_shape(CUBES, normal, k=one_of(-1, 0, 2))),
    Case("masked_fill", ops.masked_fill, of_shape(MASKED, normal, truth, value=one_of(0.0, np.float64(2)))),
    Case("concatenate", ops.concatenate, concatenation(ops.concatenate)),
    Case("stack", ops.stack, concatenation(ops.stack)),
    Case("split", halves, one(min_dims=1, axis=an_axis)),
    Case("matmul", ops.matmul, of_shape(MATRICES, normal, normal)),
    Case("einsum", einsum, contractions()),
    Case("linear", ops.linear, of_shape(LAYER.map(lambda s: s[:2]), normal, normal)),
    Case("linear_bias", ops.linear, of_shape(LAYER, normal, normal, normal)),
    Case("linear_of_any_axes", ops.linear, of_shape(LAYERS, normal, normal, normal)),
    Case("grouped_linear", ops.grouped_linear, in_groups()),
    Case("attention", ops.attention, attention_inputs()),
    Case("self_attention", ops.self_attention, attention_inputs(packed=True)),
    Case("embedding", ops.embedding, of_shape(ROWS.map(lambda s: [s[1:]]), normal).flatmap(looked_up)),
    Case("cross_entropy", ops.cross_entropy, of_shape(ROWS.map(lambda s: [s[:2]]), normal).flatmap(labelled)),
    Case("cross_entropy_options", ops.cross_entropy, of_shape(PIXELS, normal).flatmap(with_label_options)),
    Case("nll_loss", nll_loss, of_shape(PIXELS, normal).flatmap(with_label_options)),
    Case("soft_cross_entropy", soft_cross_entropy, of_shape(PIXELS.map(lambda s: s * 2), normal, normal,
         weight=class_weights, label_smoothing=one_of(0.0, 0.25), reduction=reductions)),
    Case("kl_div", ops.kl_div, twins(normal, positive, reduction=one_of("mean", "batchmean", "sum", "none"))),
    Case("kl_div_of_logarithms", ops.kl_div, twins(normal, normal, log_target=one_of(True))),
    Case("mse", ops.mse, twins(normal, normal, reduction=reductions)),
    Case("l1_loss", ops.l1_loss, twins(odd_twentieths, even_twentieths, reduction=reductions)),
    Case("huber_loss", ops.huber_loss,
         twins(odd_twentieths, even_twentieths, delta=one_of(0.5, 2), reduction=reductions)),
    Case("smooth_l1_loss", ops.smooth_l1_loss,
         twins(odd_twentieths, even_twentieths, beta=one_of(0.5, 2), reduction=reductions)),
    Case("binary_cross_entropy_with_logits", ops.binary_cross_entropy_with_logits,
         twins(normal, positive, reduction=reductions, weight=one_of(None, 0.5), pos_weight=one_of(None, 3))),
    Case("batch_norm", ops.batch_norm, of_shape(NORM, distinct, normal, normal)),
    Case("batch_norm_images", ops.batch_norm, of_shape(NORM_IMAGES, distinct, normal, normal)),
    Case("batch_norm_fixed", normalise_fixed, of_shape(NORM, normal, normal, normal)),
    Case("layer_norm", ops.layer_norm, of_shape(NORM_LAST, distinct, normal, normal)),
    Case("group_norm", ops.group_norm, of_shape(NORM_GROUPS, distinct, normal, normal, groups=one_of(1, 2))),
    Case("instance_norm", ops.instance_norm, of_shape(NORM_GROUPS, distinct, normal, normal)),
    Case("with_penalty", carrying_penalty, of_shape(LAYER.map(lambda s: s[:2]), normal, normal)),
    Case("rms_norm", ops.rms_norm, of_shape(NORM_LAST.map(lambda s: s[:2]), far_from_zero, normal)),
    Case("dropout", dropout, one(p=one_of(0, 0.5, 0.9), seed=one_of(*range(9)))),
    Case("conv2d", ops.conv2d, windows(2)),
    Case("conv2d_bias", ops.conv2d, windows(3)),
    Case("conv1d", ops.conv1d, signals()),
    Case("conv_transpose1d", ops.conv_transpose1d, transposed_signals()),
    Case("conv_transpose2d", ops.conv_transpose2d, transposed_windows()),
    Case("conv_pool2d", ops.conv_pool2d, pooled_windows()),
    Case("max_pool2d", ops.max_pool2d, windows(1, distinct, dilation=one_of(1, 2), ceil_mode=a_flag)),
    Case("avg_pool2d", ops.avg_pool2d, windows(1, ceil_mode=a_flag, count_include_pad=a_flag)),
    Case("max_pool1d", ops.max_pool1d, pooled_signals(distinct)),
    Case("avg_pool1d", ops.avg_pool1d, pooled_signals()),
    Case("adaptive_max_pool2d", ops.adaptive_max_pool2d, of_shape(IMAGE, distinct, output_size=a_size)),
    Case("adaptive_avg_pool2d", ops.adaptive_avg_pool2d, of_shape(IMAGE, normal, output_size=a_size)),
    Case("interpolate", ops.interpolate,
         of_shape(IMAGE, normal, scale_factor=one_of(1, 2, (3, 1), 1.5), mode=one_of("nearest", "bilinear"))),
    Case("interpolate_to_size", ops.interpolate,
         of_shape(IMAGE, normal, size=one_of(1, (3, 5)), mode=one_of("bilinear"), align_corners=a_flag)),
]  # fmt: skip
