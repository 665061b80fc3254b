"""Convolution, pooling and ReLU in one pass are the ops one by one, and a Sequential takes the pass."""

from unittest.mock import patch

import hypothesis.strategies as st
import numpy as np
from hypothesis import given, settings

from minigrad import Tape, Tensor, ops, testing
from minigrad.ops import conv_pool, im2col
from tests.minigrad import op_laws

LAYOUTS = [testing.c_order, op_laws.channels_last, testing.with_gaps, testing.reversed_order]


def one_by_one(x, weight, bias=None, *, pool, relu, padding):
    inputs = (x, weight) if bias is None else (x, weight, bias)
    y = ops.max_pool2d(ops.conv2d(*inputs, padding=padding), kernel=pool)
    return ops.relu(y) if relu else y


def value_and_gradients(function, inputs, **settings):
    tensors = [Tensor(x, requires_grad=True) for x in inputs]
    with Tape() as tape:
        y = function(*tensors, **settings)
    g = np.random.default_rng(0).integers(-9, 10, y.shape).astype(y.dtype)
    tape.backward(y, g)
    return [y.numpy(), *(t.grad for t in tensors)]


@st.composite
def networks(draw):
    """Whole numbers, whose sums are exact, with many ties; images of which rows may be left over."""
    kernel, pool = (draw(st.tuples(st.integers(1, most), st.integers(1, most))) for most in (3, 3))
    padding = draw(st.tuples(st.integers(0, 2), st.integers(0, 2)))
    height, width = (k + p + draw(st.integers(0, 5)) for k, p in zip(kernel, pool, strict=True))
    n, channels, filters = draw(st.integers(0, 5)), draw(st.sampled_from([1, 3, 9])), draw(st.integers(1, 4))
    rng, dtype = np.random.default_rng(draw(st.integers(0, 2**16))), draw(st.sampled_from("fd"))
    shapes = [(n, channels, height, width), (filters, channels, *kernel), (filters,)]
    inputs = [rng.integers(-2, 3, shape).astype(dtype) for shape in shapes[: draw(st.integers(2, 3))]]
    if inputs[0].size and draw(st.booleans()):
        inputs[0].reshape(-1)[:: max(inputs[0].size // 3, 1)] = draw(st.sampled_from([np.nan, np.inf]))
    inputs[:2] = [draw(st.sampled_from(LAYOUTS))(a) for a in inputs[:2]]
    return inputs, {"pool": pool, "padding": padding, "relu": draw(st.booleans())}


@settings(max_examples=3 * settings().max_examples)
@given(networks(), st.sampled_from([1, 2000, conv_pool.CACHE]), st.sampled_from([500, im2col.SMALL]))
def test_one_pass_gives_the_bits_of_the_ops_one_by_one(network, cache, small):
    inputs, chosen = network
    with (
        patch.object(conv_pool, "CACHE", cache),
        patch.object(im2col, "SMALL", small),
        np.errstate(invalid="ignore"),
    ):
        results = value_and_gradients(ops.conv_pool2d, inputs, **chosen)
        expected = value_and_gradients(one_by_one, inputs, **chosen)
    for what, a, b in zip(("value", "to x", "to weight", "to bias"), results, expected, strict=False):
        if what == "to weight" and not np.isfinite(inputs[0]).all():
            continue  # one by one, a NaN that no window of the pooling sees is multiplied by its gradient, 0
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b, what)
