"""The fast forms of ops are their readable ones, and these laws catch what they should."""

from functools import partial
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from minigrad import device, nn, ops, sums
from minigrad.ops import blocks, elementwise, scan
from minigrad.ops.elementwise import constant_power, leaky_relu_by_maximum, positive_part, where_positive
from minigrad.ops.reduce import largest_keepdims
from minigrad.ops.sum_by_row import sum_by_row
from minigrad.testing import c_order, fortran_order, with_gaps
from tests.minigrad.fast_form_laws import (
    adds_in_short_chains,
    are_the_largest,
    is_itself_in_parts,
    is_leaky_relu,
    is_one_stream,
    is_relu,
    is_the_power,
    is_the_softmax,
    loops_are_the_readable_form,
    sums_over_axes,
    sums_rows_as_add_at,
    sums_up_to_each,
)

DTYPES = st.sampled_from([np.float32, np.float64])


@given(st.data(), DTYPES, st.integers(1, 20), st.integers(0, 3), st.sampled_from([c_order, fortran_order]))
def test_sums_of_chosen_rows(data, dtype, count, ndim, order):
    rows = data.draw(hnp.arrays(np.int64, st.integers(0, 60), elements=st.integers(0, count - 1)))
    g = np.random.default_rng(0).integers(-9, 10, (len(rows), *range(2, 2 + ndim))).astype(dtype)
    sums_rows_as_add_at(sum_by_row, order(g), rows, count)


@given(st.data(), DTYPES, st.one_of(st.integers(-9, 9), st.sampled_from([0.5, -0.5, 2.5, 3.0, -2.0])))
def test_powers_by_a_number(data, dtype, y):
    width = 32 if dtype == np.float32 else 64
    x = data.draw(hnp.arrays(dtype, 5, elements=st.floats(width=width)))
    is_the_power(constant_power, x, y)


SIZES = st.integers(0, 4) | st.sampled_from([63, 64, 65, 127, 255, 256, 1000, 1024, 1100, 4097])


@given(DTYPES, SIZES, st.integers(0, 3), st.sampled_from([0.1, 10.0]), st.sampled_from([0.0, 1.0]), st.data())
def test_sums_of_columns_and_rows(dtype, long, short, offset, spread, data):
    rng = np.random.default_rng(0)
    orders = st.sampled_from([c_order, fortran_order, with_gaps])
    x, y = ((offset + spread * rng.normal(size=(long, short))).astype(dtype) for _ in range(2))
    x, y = data.draw(orders)(x), data.draw(orders)(y)
    for axis, total, dots in ((0, sums.column_sums, sums.column_dots), (1, sums.row_sums, sums.row_dots)):
        for a, b in ((x, y), (x.T, y.T)):
            adds_in_short_chains(total, axis, a)
            adds_in_short_chains(dots, axis, a, b)


@given(DTYPES, st.permutations(range(4)), st.sets(st.integers(0, 3)), st.booleans())
def test_sums_over_axes(dtype, order, axes, gaps):
    x = np.random.default_rng(0).integers(-9, 10, (2, 3, 4, 5)).astype(dtype).transpose(order)
    with patch.object(sums, "SMALL", 1):
        sums_over_axes(sums.axis_sums, with_gaps(x) if gaps else x, tuple(axes))


@given(DTYPES, st.integers(1, 3), st.sampled_from([1, 15, 64, 65, 300, 1025]), st.booleans(), st.data())
def test_sums_up_to_each(dtype, others, n, backwards, data):
    x = np.random.default_rng(0).normal(size=(others, n)).astype(dtype)
    x[0, n // 2] *= data.draw(st.sampled_from([1, np.inf, np.nan]))
    axis, order = (
        data.draw(st.integers(0, 1)),
        data.draw(st.sampled_from([c_order, fortran_order, with_gaps])),
    )
    x = order(x if axis else x.T)
    products = x.strides[axis] == x.itemsize and np.isfinite(x).all()
    chain = 3 * (scan.PIECE + 1) if products and n >= 4 * scan.PIECE else n
    with patch.object(scan, "ROWS", 1), patch.object(scan, "SLICE", 1):
        sums_up_to_each(scan.running_sums, x, axis, backwards, chain)


@given(hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=6), DTYPES, st.integers(1, 9))
def test_weights_drawn_in_blocks(shape, dtype, block):
    with patch.object(nn, "BLOCK", block):
        is_one_stream(nn.sample, shape, dtype)


@given(st.data(), DTYPES, st.integers(0, 2), st.sampled_from([c_order, fortran_order, with_gaps]))
def test_the_largest_of_rows(data, dtype, axis, order):
    elements = st.sampled_from([np.nan, np.inf, -np.inf, -1.0, 0.0, 2.0])
    shape = hnp.array_shapes(min_dims=3, max_dims=3, max_side=3)
    are_the_largest(largest_keepdims, order(data.draw(hnp.arrays(dtype, shape, elements=elements))), axis)


@given(DTYPES, DTYPES, st.integers(0, 40), st.integers(0, 140), st.sampled_from([c_order, fortran_order]))
def test_copies_in_c_order(dtype, target, rows, columns, order):
    matrix = order(np.random.default_rng(0).normal(size=(rows, columns)).astype(dtype))
    for x in (matrix, np.stack([matrix.T, -matrix.T]).swapaxes(1, 2)):
        with patch.object(device, "TRANSPOSED", 1):
            copy = device.in_c_order(x, target)
        assert copy.flags.c_contiguous and copy.dtype == target
        assert np.array_equal(copy, x.astype(target))


@given(st.data(), DTYPES, st.floats(0, 1))
def test_leaky_relu_by_maximum(data, dtype, slope):
    slope = float(dtype(slope))
    width = 32 if dtype == np.float32 else 64
    x = data.draw(hnp.arrays(dtype, (3, 4), elements=st.floats(width=width, allow_infinity=slope > 0)))
    is_leaky_relu(
        leaky_relu_by_maximum, x, np.random.default_rng(0).standard_normal(x.shape).astype(dtype), slope
    )


@given(
    st.data(),
    DTYPES,
    DTYPES,
    st.integers(1, 40),
    st.sampled_from([c_order, fortran_order, with_gaps, np.flip]),
)
def test_relu_without_a_mask(data, dtype, of_gradient, line, order):
    elements = st.sampled_from([-0.0, 0.0, 2**-149, -(2**-149), 2.0, -2.0, np.inf, -np.inf, np.nan, -np.nan])
    x, g = data.draw(hnp.arrays(dtype, (2, 3, 11), elements=elements))
    with patch.object(elementwise, "LINE", line):
        is_relu(positive_part, where_positive, order(x), order(g.astype(of_gradient)))


@given(DTYPES, st.sampled_from([-120.0, -100.0, -20.0, 0.0, 60.0, 1e4]), st.sampled_from([0.1, 4.0, 30.0]))
def test_softmax_on_any_level(dtype, level, spread):
    x = (level + spread * np.random.default_rng(0).normal(size=(4, 9))).astype(dtype)
    x[1, 2:7] = -np.inf
    is_the_softmax(ops.softmax, x)


ORDERS = st.sampled_from([c_order, fortran_order, with_gaps])


@given(st.integers(1, 7), st.sampled_from([4, 6]), ORDERS)
def test_softmax_of_large_arrays(n, channels, order):
    x, g = np.random.default_rng(0).normal(size=(2, n, channels))
    is_itself_in_parts(ops.softmax, order(g), order(x))
    is_itself_in_parts(ops.log_softmax, order(g), order(x))


@given(st.data(), hnp.array_shapes(max_dims=3, max_side=5), DTYPES, ORDERS, ORDERS)
def test_places_along_an_axis_by_loops(data, shape, dtype, order, of_indices):
    """Bit by bit for whole numbers, whose sums are exact."""
    axis, count = data.draw(st.integers(0, len(shape) - 1)), data.draw(st.integers(0, 6))
    sizes = [count if i == axis else n for i, n in enumerate(shape)]
    rng = np.random.default_rng(0)
    x, g, values, of_sum = (rng.integers(-9, 10, s).astype(dtype) for s in (shape, sizes, sizes, shape))
    kind = data.draw(st.sampled_from([np.int64, np.int32, np.uint8]))
    indices = of_indices(rng.integers(0, shape[axis], sizes).astype(kind))
    loops_are_the_readable_form(lambda x: ops.gather(x, indices, axis=axis), order(g), order(x), bits=True)
    scatter_add = lambda x, values: ops.scatter_add(x, indices, values, axis=axis)  # noqa: E731
    loops_are_the_readable_form(scatter_add, order(of_sum), order(x), order(values), bits=True)


NORMALISATIONS = {
    "batch": (ops.batch_norm, 1),
    "batch, with ReLU": (partial(ops.batch_norm, relu=True), 1),
    "groups": (partial(ops.group_norm, groups=2), 1),
    "instance": (ops.instance_norm, 1),
    "layer": (ops.layer_norm, -1),
}


@pytest.mark.parametrize("name", NORMALISATIONS)
@given(st.integers(0, 5), st.sampled_from([2, 4, 6, 130]), st.integers(1, 40), DTYPES, ORDERS)
def test_normalisations_by_loops(name, n, channels, pixels, dtype, order):
    op, axis = NORMALISATIONS[name]
    rng = np.random.default_rng(0)
    x, g = (order(a.astype(dtype)) for a in rng.normal(2, 3, (2, n, channels, 2, pixels)))
    w, b = rng.normal(size=(2, x.shape[axis])).astype(dtype)
    loops_are_the_readable_form(op, g, x, w, b)


def last_one_wins(g, rows, count):
    d = np.zeros((count, *g.shape[1:]), g.dtype)
    d[rows] = g
    return d


def without_the_rest(g, rows, count):
    return sum_by_row(g[:-1], rows[:-1], count)


@pytest.mark.parametrize("bug", [last_one_wins, without_the_rest])
def test_sums_that_forget_are_caught(bug):
    g, rows = np.arange(24.0).reshape(12, 2), np.array([0] * 11 + [3])
    sums_rows_as_add_at(sum_by_row, g, rows, 4)
    with pytest.raises(AssertionError):
        sums_rows_as_add_at(bug, g, rows, 4)


@pytest.mark.parametrize("sums", [lambda x: x.sum(0), lambda x: np.ones(len(x), x.dtype) @ x])
def test_long_chains_of_additions_are_caught(sums):
    x = np.full((40000, 1), 0.1, np.float32)
    with pytest.raises(AssertionError, match="eps"):
        adds_in_short_chains(sums, 0, np.repeat(x, 3, axis=1))


@pytest.mark.parametrize("bug", [lambda x, y: 1 / constant_power(x, -y), lambda x, y: abs(x) ** y])
def test_powers_that_go_over_or_lose_the_sign_are_caught(bug):
    x = np.array([-3.0, 2e-13, 1e13], np.float32)
    is_the_power(constant_power, x, -3)
    with pytest.raises(AssertionError), np.errstate(all="ignore"):
        is_the_power(bug, x, -3)


@pytest.mark.parametrize(
    "bug",
    [
        lambda x, slope: (np.maximum(x, 0), (lambda g: g * (x > 0),)),
        lambda x, slope: (np.maximum(x, x * slope), (lambda g: np.where(x >= 0, g, g * slope),)),
    ],
)
def test_other_slopes_are_caught(bug):
    x, g = np.array([-1.0, 0.0, 2.0]), np.ones(3)
    is_leaky_relu(leaky_relu_by_maximum, x, g, 0.25)
    with pytest.raises(AssertionError):
        is_leaky_relu(bug, x, g, 0.25)


@given(st.permutations(range(3)), st.permutations(range(3)), st.sampled_from([1, 5, 100]))
def test_parts_of_arrays_in_any_memory_order(first, second, size):
    def both(x, g, total, product):
        np.add(x, g, out=total)
        np.multiply(x, g, out=product)

    x = np.arange(24.0).reshape(2, 3, 4).transpose(first)
    g = np.ascontiguousarray((10 * x).transpose(second)).transpose(np.argsort(second))
    with patch.object(blocks, "SIZE", size):
        total, product = blocks.in_blocks(both, x, g, outputs=2)
    assert np.array_equal(total, 11 * x) and np.array_equal(product, 10 * x * x)
    assert total.strides == product.strides == x.strides
