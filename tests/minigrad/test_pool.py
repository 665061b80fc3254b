"""The fast form of max pooling is the readable one, forward and backward."""

from typing import Any
from unittest.mock import patch

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from minigrad import ops
from minigrad.device import array_module, to_host
from minigrad.ops import pool
from minigrad.ops.geometry import Geometry
from minigrad.testing import on_device
from tests.minigrad import op_laws


@st.composite
def tilings(draw):
    """Images, with many ties, and windows side by side; some rows and columns may be left over."""
    kernel = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    height, width = (k * draw(st.integers(1, 3)) + draw(st.integers(0, k - 1)) for k in kernel)
    shape = draw(st.integers(0, 5)), height, width, draw(st.integers(1, 5))
    x = np.random.default_rng(draw(st.integers(0, 2**16))).integers(0, 3, shape)
    return on_device(x.astype(draw(st.sampled_from("fd")))), Geometry(kernel, kernel, (0, 0), (1, 1))


@settings(max_examples=3 * settings().max_examples)
@given(tilings(), st.sampled_from([1, pool.CACHE]), st.booleans())
def test_pooling_of_tiles_is_pooling_of_windows(drawn, cache, with_nan):
    x, geometry = drawn
    if with_nan and x.size:
        x.reshape(-1)[:: max(x.size // 3, 1)] = np.nan
    with patch.object(pool, "CACHE", cache):
        y, to_x = pool.max_of_tiles(x, geometry)
        expected, slow = pool.max_of_windows(x, geometry)
        g = on_device(np.random.default_rng(0).normal(size=y.shape).astype(to_host(x).dtype))
        assert np.array_equal(to_host(y), to_host(expected), equal_nan=True)
        assert np.array_equal(to_host(to_x(g)), to_host(slow(g)))


@settings(max_examples=2 * settings().max_examples)
@given(tilings(), st.integers(1, 3), st.integers(0, 1), st.sampled_from([1, pool.CACHE]), st.booleans())
def test_pooling_by_columns_and_rows_is_pooling_of_windows(drawn, stride, padding, cache, with_nan):
    x, geometry = drawn
    padding = tuple(min(padding, k // 2) for k in geometry.kernel)
    geometry = geometry._replace(stride=(stride, 3 - stride % 3), padding=padding)
    if with_nan and x.size:
        x.reshape(-1)[:: max(x.size // 3, 1)] = np.nan
    with patch.object(pool, "CACHE", cache):
        y, to_x = pool.max_of_columns_and_rows(x, geometry)
    expected, slow = pool.max_of_windows(x, geometry)
    g = on_device(np.random.default_rng(0).integers(1, 50, y.shape).astype(to_host(x).dtype))  # exact sums
    assert np.array_equal(to_host(y), to_host(expected), equal_nan=True)
    assert np.array_equal(to_host(to_x(g)), to_host(slow(g)))


@given(tilings(), st.integers(1, 2))
def test_the_gradient_goes_to_the_first_largest(drawn, stride):
    x, geometry = drawn
    others = [(form, (stride, stride)) for form in (pool.max_of_windows, pool.max_of_columns_and_rows)]
    for form, steps in ((pool.max_of_tiles, geometry.kernel), *others):
        geometry = geometry._replace(stride=steps)
        y, to_x = form(x, geometry)
        expected, host = np.zeros(x.shape), to_host(x)
        for n, i, j, c in np.ndindex(*y.shape):
            top, left = i * steps[0], j * steps[1]
            window = host[n, top : top + geometry.kernel[0], left : left + geometry.kernel[1], c]
            a, b = np.unravel_index(window.argmax(), window.shape)
            expected[n, top + a, left + b, c] += 1
        assert np.array_equal(to_host(to_x(array_module(x).ones_like(y))), expected)


def test_pooling_keeps_nan():
    x = np.zeros((1, 1, 4, 4))
    x[0, 0, 1, 1] = np.nan
    others: list[dict[str, Any]] = [{}, {"stride": 1}, {"padding": 1}]
    for other in others:
        assert np.isnan(ops.max_pool2d(on_device(x), kernel=2, **other).numpy()).any()


@pytest.mark.parametrize("settings", [{}, {"stride": 1}, {"padding": 1}], ids=str)
@pytest.mark.parametrize("op", [ops.max_pool2d, ops.avg_pool2d])
def test_pools_keep_channels_last(op, settings):
    x = np.random.default_rng(0).normal(size=(2, 3, 6, 7))
    op_laws.channels_last_is_kept(lambda x: op(x, kernel=2, **settings), on_device(x))
