"""Laws of minigrad/ops/fast/pool.py, window_loops.py and minigrad/ops/geometry.py: the fast forms of max
pooling are the readable one, forward and backward.
"""

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from minigrad import loops, ops
from minigrad.device import array_module, on_gpu, to_host
from minigrad.ops import pool
from minigrad.ops.geometry import Geometry
from minigrad.testing import on_device
from tests.minigrad.ops import op_laws, window_laws


@st.composite
def tilings(draw):
    """Images, with many ties, and windows side by side; some rows and columns may be left over."""
    kernel = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    height, width = (k * draw(st.integers(1, 3)) + draw(st.integers(0, k - 1)) for k in kernel)
    shape = draw(st.integers(0, 5)), height, width, draw(st.integers(1, 5))
    x = np.random.default_rng(draw(st.integers(0, 2**16))).integers(0, 3, shape)
    return on_device(x.astype(draw(st.sampled_from("fd")))), Geometry(kernel, kernel, (0, 0), (1, 1))


pairs = st.tuples(st.integers(1, 3), st.integers(1, 3))


@settings(max_examples=4 * settings().max_examples)
@given(tilings(), pairs, st.data())
def test_pooling_is_pooling_of_windows(drawn, stride, data):
    x, geometry = drawn
    if data.draw(st.booleans()):  # windows that overlap, or leave something out
        padding, extra = (tuple(data.draw(st.integers(0, k // 2)) for k in geometry.kernel) for _ in range(2))
        geometry = geometry._replace(stride=stride, padding=padding, extra=extra)
    if data.draw(st.booleans()) and x.size:
        x.reshape(-1)[:: max(x.size // 3, 1)] = data.draw(st.sampled_from([np.nan, np.inf, -np.inf]))
    y, to_x = pool.max_of_windows(x, geometry)
    expected, slow = pool.max_of_windows.readable(x, geometry)
    g = np.random.default_rng(0).integers(1, 50, y.shape).astype(to_host(x).dtype)  # exact sums
    assert np.array_equal(to_host(y), to_host(expected), equal_nan=True)
    assert np.array_equal(to_host(to_x(on_device(g))), to_host(slow(on_device(g))))


@given(st.integers(0, 99), st.sampled_from([(18, 15), (1, 257), (300, 1)]), pairs, st.sampled_from("fd"))
def test_pooling_of_windows_whose_taps_have_no_numbers_of_a_byte(seed, kernel, stride, dtype):
    shape = (1, kernel[0] + 4, kernel[1] + 3, 2)
    x = on_device(np.random.default_rng(seed).integers(0, 300, shape).astype(dtype))
    geometry = Geometry(kernel, stride, (0, 0), (1, 1))
    (y, to_x), (expected, slow) = pool.max_of_windows(x, geometry), pool.max_of_windows.readable(x, geometry)
    g = array_module(x).ones_like(y)
    assert np.array_equal(to_host(y), to_host(expected))
    assert np.array_equal(to_host(to_x(g)), to_host(slow(g)))


@pytest.mark.skipif(not (loops.available() or on_gpu(on_device(0.0))), reason="Numba is not installed")
@pytest.mark.parametrize(("op", "bytes_each"), [(ops.max_pool2d, 1), (ops.avg_pool2d, 0)])
def test_a_pool_holds_a_byte_for_each_maximum(op, bytes_each):
    window_laws.pool_holds(op, np.random.default_rng(0).normal(size=(2, 3, 8, 8)), bytes_each)


@given(tilings(), st.integers(1, 2))
def test_the_gradient_goes_to_the_first_largest(drawn, stride):
    x, geometry = drawn
    for form in (pool.max_of_windows.readable, pool.max_of_windows):
        for steps in (geometry.kernel, (stride, stride)):
            y, to_x = form(x, geometry._replace(stride=steps))
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
