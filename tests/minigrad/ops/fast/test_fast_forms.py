"""Laws of minigrad/ops/fast/activation.py, activation_loops.py, batch_norm.py, elementwise.py,
elementwise_loops.py, gather.py, group_norm.py, layer_norm.py, loss.py, scan.py, softmax.py,
cross_entropy.py, einsum.py, linear.py, shape.py, minigrad/normal_distribution.py, sums.py, product.py,
minigrad/nn/init.py and minigrad/ops/selection.py: the fast forms of ops are their readable
ones, and these laws catch what they should.
"""

import math
from functools import partial
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from minigrad import device, loops, op, ops, product, sums
from minigrad.nn import init
from minigrad.ops import scan
from minigrad.ops.fast import elementwise
from minigrad.ops.fast.elementwise import constant_power
from minigrad.ops.fast.elementwise_loops import of_elements
from minigrad.ops.fast.softmax import are_rows
from minigrad.ops.selection import masked, positive_part, sum_by_row, where_positive, winners
from minigrad.testing import c_order, fortran_order, reversed_order, with_gaps
from tests.minigrad.ops.fast.fast_form_laws import (
    adds_in_short_chains,
    an_unknown_setting_is_refused_by_the_ops_name,
    are_the_readable_form,
    has_the_same_bits_before_numba_is_imported,
    in_both_forms,
    is_exact_in_loops,
    is_leaky_relu,
    is_one_stream,
    is_relu,
    is_the_power,
    is_the_product,
    is_the_softmax,
    loops_are_the_readable_form,
    loops_meet_no_gaps,
    sums_over_axes,
    sums_rows_as_add_at,
    sums_up_to_each,
    write_exp,
    write_expm1,
    write_log1p,
    write_normal_distribution,
)
from tests.minigrad.ops.op_table import TABLE

DTYPES = st.sampled_from([np.float32, np.float64])
ORDERS = st.sampled_from([c_order, fortran_order, with_gaps, reversed_order])


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
    x = (offset + spread * np.random.default_rng(0).normal(size=(long, short))).astype(dtype)
    x = data.draw(ORDERS)(x)
    for axis, total in ((0, sums.column_sums), (1, sums.row_sums)):
        adds_in_short_chains(total, axis, x)
        adds_in_short_chains(total, axis, x.T)


@pytest.mark.parametrize("name", sorted(ops.__all__))
def test_an_unknown_setting(name):
    an_unknown_setting_is_refused_by_the_ops_name(getattr(ops, name), name)


@pytest.mark.parametrize("case", TABLE, ids=lambda case: case.name)
@settings(max_examples=2)
@given(st.data(), DTYPES)
def test_the_bits_before_numba_is_imported(case, data, dtype):
    f, inputs = case.draw(data)
    is_float = [getattr(x, "dtype", None) == np.float64 for x in inputs]
    inputs = [x.astype(dtype) if yes else x for x, yes in zip(inputs, is_float, strict=True)]
    has_the_same_bits_before_numba_is_imported(f, *inputs)


@given(DTYPES, st.permutations(range(4)), st.sets(st.integers(0, 3)), st.booleans())
def test_sums_over_axes(dtype, order, axes, gaps):
    x = np.random.default_rng(0).integers(-9, 10, (2, 3, 4, 5)).astype(dtype).transpose(order)
    with patch.object(sums, "SMALL", 1):
        sums_over_axes(sums.axis_sums, with_gaps(x) if gaps else x, tuple(axes))


@given(DTYPES, st.sampled_from([(1, 1), (3, 300), (2, 65, 3), (1, 40, 5)]), st.booleans(), st.data())
def test_sums_up_to_each(dtype, shape, backwards, data):
    x = np.random.default_rng(0).normal(size=shape).astype(dtype)
    x.reshape(-1)[x.size // 2] *= data.draw(st.sampled_from([1, np.inf, np.nan]))
    x = data.draw(ORDERS)(x)
    axis = data.draw(st.integers(0, x.ndim - 1))
    in_both_forms(sums_up_to_each, scan.running_sums, x, axis, backwards, chain=x.shape[axis])
    if loops.available():
        double = 2 if dtype == np.float32 else x.shape[axis]
        sums_up_to_each(scan.running_sums, x, axis, backwards, chain=double)


@given(st.integers(0, 5), st.integers(1, 3), st.integers(0, 40), DTYPES, ORDERS, ORDERS)
def test_products_of_a_column_and_a_long_row(rows, inner, columns, dtype, order, order_of_b):
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-9, 10, shape).astype(dtype) for shape in ((rows, inner), (inner, columns)))
    with patch.object(product, "LONG_ROW", 20):
        is_the_product(product.product, order(a), order_of_b(b))


@given(hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=6), DTYPES, st.integers(1, 9))
def test_weights_drawn_in_blocks(shape, dtype, block):
    with patch.object(init, "BLOCK", block):
        is_one_stream(init.sample, shape, dtype)


@given(DTYPES, DTYPES, st.integers(0, 40), st.integers(0, 140), st.sampled_from([c_order, fortran_order]))
def test_copies_in_c_order(dtype, target, rows, columns, order):
    matrix = order(np.random.default_rng(0).normal(size=(rows, columns)).astype(dtype))
    for x in (matrix, np.stack([matrix.T, -matrix.T]).swapaxes(1, 2)):
        with patch.object(device, "TRANSPOSED", 1):
            copy = device.in_c_order(x, target)
        assert copy.flags.c_contiguous and copy.dtype == target
        assert np.array_equal(copy, x.astype(target))


@given(st.data(), DTYPES, st.floats(-2, 2, width=32))
def test_leaky_relu_with_any_slope(data, dtype, slope):
    x = data.draw(hnp.arrays(dtype, (3, 4), elements=st.floats(width=32 if dtype == np.float32 else 64)))
    g = np.random.default_rng(0).standard_normal(x.shape).astype(dtype)
    in_both_forms(is_leaky_relu, ops.leaky_relu, x, g, slope)


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
    is_relu(positive_part.readable, where_positive.readable, order(x), order(g.astype(of_gradient)))


@given(st.data(), st.sampled_from([np.float16, np.float32, np.float64, np.longdouble, np.int8]), ORDERS)
def test_choices_without_a_choice(data, dtype, order):
    """Bit by bit, since nothing is rounded."""
    numbers = [-np.inf, -1, -0.0, 0, 2, np.inf, np.nan] if dtype != np.int8 else [-1, 0, 2]
    x, y, g = (order(a) for a in data.draw(hnp.arrays(dtype, (3, 2, 3), elements=st.sampled_from(numbers))))
    for form, arguments in ((masked, (g, x > y)), (masked, (g, x[:1] > y[:1])), (winners, (g, x, y))):
        if form is masked or dtype != np.int8:
            value, readable = form(*arguments), form.readable(*arguments)
            assert value.dtype == readable.dtype == dtype and value.strides == readable.strides
            np.testing.assert_array_equal(value, readable)


@given(DTYPES, st.sampled_from([-120.0, -100.0, -20.0, 0.0, 60.0, 1e4]), st.sampled_from([0.1, 4.0, 30.0]))
def test_softmax_on_any_level(dtype, level, spread):
    x = (level + spread * np.random.default_rng(0).normal(size=(4, 9))).astype(dtype)
    x[1, 2:7] = -np.inf
    in_both_forms(is_the_softmax, ops.softmax, x)


def of_exponent(x):
    """Roundings of gelu by tanh, whose exponent rounds by some eps of itself."""
    with np.errstate(over="ignore"):
        return 8 * (1 + np.minimum(2 * abs(x) + 0.1 * abs(x) ** 3, 800))


ELEMENTWISE = {  # an op, and by how many roundings its forms differ
    "abs": (ops.abs, 0),
    "leaky_relu": (ops.leaky_relu, 0),
    "leaky_relu, below 0": (partial(ops.leaky_relu, slope=-3.0), 0),
    "leaky_relu, steep": (partial(ops.leaky_relu, slope=2.0), 0),
    "hardswish": (ops.hardswish, 0),
    "sigmoid": (ops.sigmoid, 8),
    "silu": (ops.silu, 16),
    "gelu": (ops.gelu, 16),
    "gelu by tanh": (partial(ops.gelu, approximate="tanh"), of_exponent),
    "softplus": (ops.softplus, 16),
    "softplus, steep": (partial(ops.softplus, beta=2.5, threshold=3.0), 16),
    "log_sigmoid": (ops.log_sigmoid, 16),
    "elu": (ops.elu, 8),
    "elu, below 0": (partial(ops.elu, alpha=-0.3), 8),
}
ODD = st.sampled_from(
    [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-20, -1e-20, 3.0, -3.0, 88.5, -88.5, 1e30, -1e30]
)
SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=9) | st.tuples(st.integers(0, 400))


def with_odd_numbers(shape, spread, odd):
    x = spread * np.random.default_rng(0).normal(size=math.prod(shape))
    x[: len(odd)] = odd[: x.size]
    return x.reshape(shape)


@given(SHAPES, st.lists(ORDERS, min_size=1, max_size=3))
def test_loops_meet_no_gaps(shape, orders):
    loops_meet_no_gaps(of_elements, *(order(np.full(shape, float(i))) for i, order in enumerate(orders)))


@pytest.mark.parametrize("name", ELEMENTWISE)
@given(SHAPES, st.sampled_from([0.1, 4.0, 60.0]), st.lists(ODD, max_size=9), DTYPES, ORDERS, ORDERS)
def test_elements_by_loops(name, shape, spread, odd, dtype, order, order_of_g):
    op, roundings = ELEMENTWISE[name]
    x, g = with_odd_numbers(shape, spread, odd), np.random.default_rng(1).normal(size=shape)
    arrays = order_of_g(np.asarray(g, dtype)), order(x.astype(dtype))
    bound = roundings(np.nan_to_num(arrays[1])) if callable(roundings) else roundings
    loops_are_the_readable_form(op, *arrays, roundings=bound)


@pytest.mark.parametrize("op", [ops.softmax, ops.log_softmax])
@given(SHAPES, st.sampled_from([0.1, 4.0, 30.0]), st.lists(ODD, max_size=4), DTYPES, ORDERS, st.data())
def test_softmax_by_loops(op, shape, spread, odd, dtype, order, data):
    x, g = with_odd_numbers(shape, spread, odd), np.random.default_rng(1).normal(size=shape)
    axis = data.draw(st.integers(-max(x.ndim, 1), max(x.ndim, 1) - 1))
    loops_are_the_readable_form(partial(op, axis=axis), np.asarray(g, dtype), order(x.astype(dtype)))


@given(SHAPES, st.sampled_from([0.1, 4.0, 30.0]), st.lists(ODD, max_size=4), DTYPES, ORDERS, st.data())
def test_logsumexp_by_loops(shape, spread, odd, dtype, order, data):
    x = with_odd_numbers(shape, spread, odd)
    axis = data.draw(st.none() | st.integers(-max(x.ndim, 1), max(x.ndim, 1) - 1))
    g = np.random.default_rng(1).normal(size=x.sum(axis=axis).shape)
    loops_are_the_readable_form(
        partial(ops.logsumexp, axis=axis), np.asarray(g, dtype), order(x.astype(dtype))
    )


@pytest.mark.parametrize("op", [ops.softmax, ops.log_softmax])
@pytest.mark.parametrize("shape", [(5, 2, 3), (3, 2, 4), (2, 3, 1), (4, 1, 5)], ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_softmax_by_loops_along_the_first_of_three_axes(op, shape, dtype):
    """Where the axes' order is not the one that leads back."""
    x, g = np.random.default_rng(0).normal(size=(2, *shape)).astype(dtype)
    assert are_rows(x, (0,)) or not loops.available()
    loops_are_the_readable_form(partial(op, axis=0), g, x)


@pytest.mark.parametrize("op", [ops.cumsum, ops.cumprod])
@given(SHAPES, st.floats(0, 0.1), DTYPES, ORDERS, st.data())
def test_scans_by_loops(op, shape, zeros, dtype, order, data):
    rng = np.random.default_rng(0)
    x, g = np.exp(rng.normal(size=shape) / 10) * rng.choice([-1, 1], shape), rng.normal(size=shape)
    x = np.where(rng.random(shape) < zeros, 0, x)
    axis = data.draw(st.integers(-max(x.ndim, 1), max(x.ndim, 1) - 1))
    loops_are_the_readable_form(partial(op, axis=axis), np.asarray(g, dtype), order(x.astype(dtype)))


@pytest.mark.parametrize("op", [partial(ops.huber_loss, delta=0.75), partial(ops.smooth_l1_loss, beta=2.0)])
@given(SHAPES, st.sampled_from(["mean", "sum", "none"]), DTYPES, ORDERS, ORDERS)
def test_losses_by_loops(op, shape, reduction, dtype, order, order_of_y):
    rng = np.random.default_rng(0)
    x, y = (f(np.asarray(rng.normal(size=shape), dtype)) for f in (order, order_of_y))
    g = np.asarray(rng.normal(size=shape if reduction == "none" else ()), dtype)
    loops_are_the_readable_form(partial(op, reduction=reduction), g, x, y)


@given(
    st.tuples(st.integers(0, 4), st.integers(1, 5), *[st.integers(1, 3)] * 2),
    st.integers(2, 4),
    st.sampled_from([{}, {"soft": True}, {"ignore_index": 0}]),
    st.sampled_from([0.0, 0.25, 1.0]),
    st.sampled_from([None, 0.0, 0.5]),
    st.sampled_from(["mean", "sum", "none"]),
    st.sampled_from([0.0, np.inf, -np.inf, np.nan]),
    DTYPES,
    ORDERS,
)
def test_cross_entropy_without_targets(shape, ndim, kind, s, weight, reduction, odd, dtype, order):
    rng, shape = np.random.default_rng(0), shape[:ndim]
    x, t = rng.normal(size=(2, *shape)).astype(dtype)
    each = (shape[0], *shape[2:])
    x.reshape(-1)[:2] += odd
    labels = rng.integers(0, shape[1], each)
    settings = {"label_smoothing": s, "reduction": reduction, "ignore_index": kind.get("ignore_index")}
    if weight is not None:
        settings["weight"] = np.linspace(weight, 2, shape[1])
    g = np.asarray(rng.normal(size=each if reduction == "none" else ()), dtype)
    inputs = [order(x), order(np.maximum(t, 0)) if "soft" in kind else labels]
    are_the_readable_form(partial(ops.cross_entropy, **settings), *inputs, g=g)


@given(SHAPES, st.booleans(), st.booleans(), st.sampled_from(["mean", "sum", "none"]), DTYPES, ORDERS)
def test_losses_of_probabilities(shape, weight, pos_weight, reduction, dtype, order):
    rng = np.random.default_rng(0)
    x, t = (order(np.asarray(a, dtype)) for a in (5 * rng.normal(size=shape), rng.random(shape).round(1)))
    factor = np.linspace(0, 2, shape[-1]) if shape else 0.5
    settings = {"weight": factor} if weight else {}
    settings |= {"pos_weight": factor} if pos_weight else {}
    g = np.asarray(rng.normal(size=shape if reduction == "none" else ()), dtype)
    loss = partial(ops.binary_cross_entropy_with_logits, **settings, reduction=reduction)
    are_the_readable_form(loss, x, t, g=g)
    are_the_readable_form(partial(ops.kl_div, reduction=reduction), x, t, g=g)


NUMBERS = st.floats(-120, 90) | st.floats() | st.floats(-1e-3, 1e-3)
REFERENCES = {  # a loop, what it writes, for which numbers, and how exactly
    "exp": (write_exp, np.exp, NUMBERS, 1),
    "expm1": (write_expm1, np.expm1, NUMBERS.map(lambda x: -abs(x)), 2),
    "log1p": (write_log1p, np.log1p, st.floats(0, 1) | st.floats(0, 1e-3), 3),
    "normal": (
        write_normal_distribution,
        np.vectorize(lambda x: math.erfc(-x / math.sqrt(2)) / 2),
        NUMBERS,
        0,
    ),
}


@pytest.mark.skipif(not loops.available(), reason="there is no Numba")
@pytest.mark.parametrize("name", REFERENCES)
@given(st.data(), DTYPES)
def test_functions_in_loops(name, data, dtype):
    loop, function, numbers, roundings = REFERENCES[name]
    with np.errstate(all="ignore"):
        x = np.array(data.draw(st.lists(numbers, min_size=1, max_size=40)), dtype)
        wide = x.astype(np.longdouble)
        exact = function(wide)
        is_exact_in_loops(loop, x, exact, roundings or 16 * (1 + np.minimum(wide * wide, 2e4)))


@given(st.data(), hnp.array_shapes(max_dims=3, max_side=5), DTYPES, ORDERS, ORDERS)
def test_places_along_an_axis_by_loops(data, shape, dtype, order, of_indices):
    """Bit by bit for whole numbers, whose sums are exact."""
    axis, count = data.draw(st.integers(0, len(shape) - 1)), data.draw(st.integers(0, 6))
    sizes = [count if i == axis else n for i, n in enumerate(shape)]
    rng = np.random.default_rng(0)
    x, g, values, of_sum = (rng.integers(-9, 10, s).astype(dtype) for s in (shape, sizes, sizes, shape))
    kind = data.draw(st.sampled_from([np.int64, np.int32, np.uint8]))
    indices = of_indices(rng.integers(0, shape[axis], sizes).astype(kind))
    loops_are_the_readable_form(lambda x: ops.gather(x, indices, axis=axis), order(g), order(x), roundings=0)
    scatter_add = lambda x, values: ops.scatter_add(x, indices, values, axis=axis)  # noqa: E731
    loops_are_the_readable_form(scatter_add, order(of_sum), order(x), order(values), roundings=0)


@pytest.mark.parametrize(
    "case",
    [case for case in TABLE if case.name.startswith(("einsum", "getitem", "pad", "topk", "scatter"))],
    ids=lambda case: case.name,
)
@given(st.data())
def test_elements_that_are_moved(case, data):
    op, inputs = case.draw(data)
    g = np.random.default_rng(0).normal(size=op(*inputs).shape)
    are_the_readable_form(op, *inputs, g=g)


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
        lambda x, *, slope: (np.maximum(x, 0), (lambda g: g * (x > 0),)),
        lambda x, *, slope: (np.maximum(x, x * slope), (lambda g: np.where(x >= 0, g, g * slope),)),
    ],
)
def test_other_slopes_are_caught(bug):
    x, g = np.array([-1.0, 0.0, 2.0]), np.ones(3)
    with pytest.raises(AssertionError, match="differs"):
        is_leaky_relu(op(bug), x, g, 0.25)


@given(st.permutations(range(3)), st.permutations(range(3)))
def test_elements_in_any_memory_order(first, second):
    x = np.arange(24.0).reshape(2, 3, 4).transpose(first)
    g = np.ascontiguousarray((10 * x).transpose(second)).transpose(np.argsort(second))
    total = of_elements(lambda x, g, factor, out: np.add(x, factor * g, out=out), x, g, settings=[2.0])
    assert np.array_equal(total, 21 * x) and total.strides == x.strides


LONG_AXES = [
    ((5000, 3), (0,)),
    ((2, 3000, 3), (1,)),
    ((3000, 2, 3), (0, 2)),
    ((2, 3, 3000), (0, 2)),
    ((3, 9000), (1,)),
]


@pytest.mark.parametrize(("shape", "axes"), LONG_AXES)
@given(DTYPES, st.sampled_from([c_order, fortran_order, with_gaps, reversed_order]), st.booleans())
@settings(max_examples=settings().max_examples // 2)
def test_sums_over_any_long_axes_have_short_chains(shape, axes, dtype, order, repeated):
    x = order(np.random.default_rng(0).uniform(0.1, 1, shape).astype(dtype))
    if repeated:
        x = np.broadcast_to(x[..., :1], shape)
    rest = [i for i in range(len(shape)) if i not in axes]
    matrix = x.transpose(*axes, *rest).reshape(-1, math.prod(shape[i] for i in rest))
    adds_in_short_chains(lambda _: sums.axis_sums(x, axes).ravel(), 0, matrix)
