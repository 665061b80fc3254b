"""Laws of minigrad/ops/conv_pool.py and minigrad/ops/fast/conv_pool.py: convolution, pooling and ReLU in
one pass are the ops one by one, forward and backward.
"""

from unittest.mock import patch

import hypothesis.strategies as st
import numpy as np
from hypothesis import given, settings

from minigrad import ops, testing
from minigrad.ops.fast import conv_pool, im2col, kernel_rows, winograd
from tests.minigrad.ops import op_laws, window_laws

LAYOUTS = [testing.c_order, op_laws.channels_last, testing.with_gaps, testing.reversed_order]


def whole(rng, shape):
    """Numbers whose sums are exact in any order, with many ties."""
    return rng.integers(-2, 3, shape)


def normal(rng, shape):
    return rng.normal(size=shape)


@st.composite
def networks(draw, values, kernels, tiles, dtypes="fd", least=0):
    """Images of which rows and columns may be left over, kernel and perhaps bias, and settings."""
    kernel, pool = draw(kernels), draw(tiles)
    padding = draw(st.tuples(st.integers(0, 2), st.integers(0, 2)))
    height, width = (k + p + draw(st.integers(0, 5)) for k, p in zip(kernel, pool, strict=True))
    n, channels, filters = (
        draw(st.integers(least, 5)),
        draw(st.sampled_from([1, 3, 9])),
        draw(st.integers(1, 4)),
    )
    rng, dtype = np.random.default_rng(draw(st.integers(0, 2**16))), draw(st.sampled_from(dtypes))
    shapes = [(n, channels, height, width), (filters, channels, *kernel), (filters,)]
    inputs = [values(rng, shape).astype(dtype) for shape in shapes[: draw(st.integers(2, 3))]]
    inputs[:2] = [draw(st.sampled_from(LAYOUTS))(a) for a in inputs[:2]]
    return inputs, {"pool": pool, "padding": padding, "relu": draw(st.booleans())}


def pairs(most):
    return st.tuples(st.integers(1, most), st.integers(1, most))


@settings(max_examples=2 * settings().max_examples)
@given(
    network=networks(whole, pairs(3), pairs(3)),
    outlier=st.sampled_from([0.0, 0.0, np.nan, np.inf]),
    cache=st.sampled_from([1, 2000, conv_pool.WINDOW_BYTES]),
    small=st.sampled_from([500, im2col.SMALL]),
)
def test_one_pass_gives_the_bits_of_the_ops_one_by_one(network, outlier, cache, small):
    (x, *others), chosen = network
    x = x.copy()
    x.reshape(-1)[:: max(x.size // 3, 1)] = outlier
    with patch.object(conv_pool, "WINDOW_BYTES", cache), patch.object(im2col, "SMALL", small):
        window_laws.is_convolution_pooling_and_relu(ops.conv_pool2d, (x, *others), **chosen)


def by_sums_of_fractions(algorithm, network, cache):
    inputs, chosen = network
    with (
        patch.object(conv_pool, "WINDOW_BYTES", cache),
        patch.object(winograd, "TILE_BYTES", cache),
        patch.object(kernel_rows, "IMAGE_BYTES", cache),
        patch.object(conv_pool, "fastest", lambda *_: algorithm),
    ):
        window_laws.is_convolution_pooling_and_relu(ops.conv_pool2d, inputs, bits=False, **chosen)


@given(
    network=networks(normal, st.just((3, 3)), st.tuples(*[st.sampled_from([1, 2, 4])] * 2), "d", least=1),
    cache=st.sampled_from([1, conv_pool.WINDOW_BYTES]),
)
def test_one_pass_by_winograd_s_algorithm_is_that_and_pooling(network, cache):
    by_sums_of_fractions("winograd", network, cache)


@given(
    network=networks(normal, st.tuples(st.integers(3, 5), st.integers(1, 5)), pairs(4), "d", least=1),
    cache=st.sampled_from([1, 2000, conv_pool.WINDOW_BYTES]),
)
def test_one_pass_by_winograd_s_algorithm_down_the_columns_is_that_and_pooling(network, cache):
    by_sums_of_fractions("winograd_rows", network, cache)
