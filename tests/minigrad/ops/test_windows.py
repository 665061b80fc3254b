"""Laws of minigrad/ops/geometry.py, pool.py, signals.py, resize.py, conv.py, minigrad/integer_settings.py,
exact_convolutions.py, minigrad/ops/fast/adaptive_pool.py and interpolate.py: pools, adaptive pools,
transposed convolutions, padding "same" and interpolation are their definitions.
"""

from contextlib import nullcontext
from functools import partial

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from minigrad import ops
from minigrad.testing import c_order, fortran_order, on_device, with_gaps
from tests.minigrad.ops import window_laws
from tests.minigrad.ops.fast import fast_form_laws

DTYPES = st.sampled_from([np.float32, np.float64])
ORDERS = st.sampled_from([c_order, fortran_order, with_gaps])


def two(least, most):
    return st.tuples(st.integers(least, most), st.integers(least, most))


@st.composite
def poolings(draw, mean):
    """Windows that fit, or begin on the images."""
    kernel, stride = draw(two(1, 4)), draw(two(1, 4))
    settings = {"kernel": kernel, "stride": stride, "ceil_mode": draw(st.booleans())}
    if mean:
        dilation, settings["count_include_pad"] = (1, 1), draw(st.booleans())
    else:
        dilation = settings["dilation"] = draw(two(1, 2))
    extents = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    settings["padding"] = tuple(draw(st.integers(0, extent // 2)) for extent in extents)
    sizes = [draw(st.integers(extent, extent + 4)) for extent in extents]
    return sizes, settings


@pytest.mark.parametrize("op", [ops.max_pool2d, ops.avg_pool2d], ids=lambda op: op.__name__)
@given(data=st.data())
def test_a_pool_is_its_definition(op, data):
    mean = op is ops.avg_pool2d
    sizes, settings = data.draw(poolings(mean))
    x = np.random.default_rng(0).integers(-9, 9, size=(2, 2, *sizes)).astype(float)
    for shelf in (nullcontext, window_laws.readable_pools):
        with shelf():
            window_laws.pool_is_its_definition(op, x, mean, **settings)
            if mean:
                window_laws.is_the_transpose(partial(op, **settings), x)


def loops_are_the_readable_form(op, data, sizes, roundings):
    """Images of whole numbers, with ties, and perhaps with values that are not finite."""
    rng, dtype, order = np.random.default_rng(0), data.draw(DTYPES), data.draw(ORDERS)
    x = rng.integers(-2, 3, (data.draw(st.integers(0, 3)), data.draw(st.integers(1, 20)), *sizes))
    x = x.astype(dtype)
    x.reshape(-1)[:: max(x.size // 3, 1)] = data.draw(st.sampled_from([0.0, np.nan, np.inf, -np.inf]))
    g = rng.integers(-9, 10, op(on_device(x)).shape).astype(dtype)
    fast_form_laws.loops_are_the_readable_form(op, order(g), order(x), roundings=roundings)


@pytest.mark.parametrize("op", [ops.max_pool2d, ops.avg_pool2d], ids=lambda op: op.__name__)
@given(data=st.data())
def test_a_pool_by_loops_is_the_readable_one(op, data):
    sizes, settings = data.draw(poolings(op is ops.avg_pool2d))
    loops_are_the_readable_form(
        partial(op, **settings), data, sizes, roundings=0 if op is ops.max_pool2d else None
    )


@pytest.mark.parametrize("op", [ops.adaptive_max_pool2d, ops.adaptive_avg_pool2d], ids=lambda op: op.__name__)
@given(data=st.data(), sizes=two(1, 7), size=two(1, 5))
def test_an_adaptive_pool_by_loops_is_the_readable_one(op, data, sizes, size):
    pool = partial(op, output_size=size)
    loops_are_the_readable_form(pool, data, sizes, roundings=0 if op is ops.adaptive_max_pool2d else None)


@pytest.mark.parametrize("op", [ops.max_pool1d, ops.avg_pool1d], ids=lambda op: op.__name__)
@given(data=st.data())
def test_a_pool_of_signals_is_its_definition(op, data):
    mean, of_row = op is ops.avg_pool1d, {"kernel": 1, "stride": 1, "padding": 0, "dilation": 1}
    sizes, settings = data.draw(poolings(mean))
    settings |= {name: (of_row[name], settings[name][1]) for name in settings.keys() & of_row}
    x = np.random.default_rng(0).normal(size=(2, 2, 1, sizes[1]))
    window_laws.pool_is_its_definition(window_laws.pool_of_rows(op), x, mean, **settings)


@pytest.mark.parametrize("op", [ops.adaptive_max_pool2d, ops.adaptive_avg_pool2d], ids=lambda op: op.__name__)
@given(sizes=two(1, 7), size=two(1, 5), last=st.sampled_from([0.0, np.nan]))
def test_an_adaptive_pool_is_its_definition(op, sizes, size, last):
    x = np.random.default_rng(0).integers(-3, 4, (2, 2, *sizes)).astype(float)  # with ties
    x[:, :, -1, -1] = last
    for shelf in (nullcontext, window_laws.readable_pools):
        with shelf():
            window_laws.adaptive_pool_is_its_definition(op, x, size, op is ops.adaptive_avg_pool2d)


@given(value=st.sampled_from([np.nan, np.inf]), size=two(1, 4))
def test_an_adaptive_pool_spreads_what_is_no_number_to_its_windows_only(value, size):
    x = np.zeros((1, 1, 5, 5))
    x[0, 0, 4, 4] = value
    for op in (ops.adaptive_max_pool2d, ops.adaptive_avg_pool2d):
        y = op(on_device(x), output_size=size).numpy()
        assert not np.isfinite(y[0, 0, -1, -1]) and np.isfinite(y).sum() == y.size - 1


@pytest.mark.parametrize("algorithm", ["direct", "im2col"])
@given(data=st.data())
def test_a_transposed_convolution_is_the_adjoint(algorithm, data):
    stride, dilation = data.draw(two(1, 3)), data.draw(two(1, 2))
    more = [data.draw(st.integers(0, max(pair) - 1)) for pair in zip(stride, dilation, strict=True)]
    settings = {"stride": stride, "dilation": dilation, "output_padding": tuple(more)}
    settings |= {"groups": data.draw(st.integers(1, 3)), "padding": data.draw(two(0, 1))}
    seed = data.draw(st.integers(0, 99))
    window_laws.transposed_is_the_adjoint(
        ops.conv_transpose2d, ops.conv2d, seed, algorithm=algorithm, **settings
    )


@given(data=st.data(), groups=st.integers(1, 3), padding=st.integers(0, 1), seed=st.integers(0, 99))
def test_a_transposed_convolution_of_signals_is_the_adjoint(data, groups, padding, seed):
    stride, dilation = data.draw(two(1, 3))
    more = data.draw(st.integers(0, max(stride, dilation) - 1))
    settings = {
        "stride": (stride,),
        "dilation": (dilation,),
        "output_padding": (more,),
        "padding": (padding,),
    }
    window_laws.transposed_is_the_adjoint(ops.conv_transpose1d, ops.conv1d, seed, groups=groups, **settings)


@given(kernel=two(1, 4), dilation=two(1, 2), sizes=two(1, 5))
def test_padding_same_is_padding_at_the_end(kernel, dilation, sizes):
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(2, 2, *sizes)), rng.normal(size=(3, 2, *kernel))
    window_laws.same_is_padding_at_the_end(ops.conv2d, x, w, dilation)


@given(length=st.integers(4, 9), kernel=st.integers(1, 4))
def test_a_signal_is_correlated(length, kernel):
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=length), rng.normal(size=kernel)
    y = ops.conv1d(on_device(x[None, None]), on_device(w[None, None])).numpy()
    np.testing.assert_allclose(y[0, 0], np.correlate(x, w), rtol=1e-12, atol=1e-12)


FACTORS = st.sampled_from([1, 2, 3, 1.5, 1.25, 2.4, 7 / 6])
SCALES = st.fixed_dictionaries(
    {"scale_factor": st.tuples(FACTORS, FACTORS) | two(1, 5)}
) | st.fixed_dictionaries({"size": two(1, 8)})
MODES = st.sampled_from(
    [{"mode": "nearest"}, {"mode": "nearest-exact"}, {"mode": "bilinear"}]
    + [{"mode": "bilinear", "align_corners": True}]
)


@given(sizes=two(1, 4), scale=SCALES, mode=MODES)
def test_interpolation_is_its_definition(sizes, scale, mode):
    x = np.random.default_rng(0).integers(-4, 5, (2, 3, *sizes)).astype(float)
    window_laws.interpolation_is_its_definition(ops.interpolate, x, **scale, **mode)
    window_laws.is_the_transpose(partial(ops.interpolate, **scale, **mode), x)


@given(data=st.data(), sizes=two(1, 4), scale=SCALES, mode=MODES)
def test_interpolation_by_loops_is_the_readable_one(data, sizes, scale, mode):
    op = partial(ops.interpolate, **scale, **mode)
    loops_are_the_readable_form(op, data, sizes, roundings=None if mode["mode"] == "bilinear" else 0)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_interpolation_spreads_what_is_no_number_to_neighbours_only(value):
    window_laws.interpolation_spreads_to_neighbours_only(ops.interpolate, value)
