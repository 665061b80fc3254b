"""Laws of minigrad/ops/order.py, reduce.py, gather.py, scan.py and minigrad/ops/fast/order.py: ops compute
what NumPy computes, also of ties and NaN; order says where elements come from.
"""

from unittest.mock import patch

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import assume, given, settings

from minigrad import ops, testing
from minigrad.device import to_host
from minigrad.ops.fast import order
from minigrad.testing import on_device
from tests.double import ON_CUDA
from tests.minigrad.ops.extremes import extrema_at_places_are_exact
from tests.minigrad.ops.numpy_forms import (
    FORMS,
    a_constant_has_no_deviation_and_no_slope,
    equals_its_form,
    sort,
)
from tests.minigrad.ops.op_table import TABLE

FEWER = max(settings().max_examples // 2, 10)
TIES = st.lists(st.sampled_from([-1.0, 0.0, -0.0, 2.0, np.inf, -np.inf, np.nan]), min_size=6, max_size=6)


@pytest.mark.parametrize("name", FORMS)
@settings(max_examples=FEWER)
@given(data=st.data())
def test_an_op_is_its_form_in_numpy(name, data):
    case = next(case for case in TABLE if case.name == name)
    inputs, settings = data.draw(case.inputs)
    if name == "scatter" and ON_CUDA:  # which value comes last has no order there
        places = to_host(inputs[1])
        assume(places.size == 0 or len(np.unique(places)) == len(places.ravel()))
    equals_its_form(case.op, name, *inputs, **settings)


@given(values=TIES, axis=st.integers(-2, 1), descending=st.booleans(), k=st.integers(0, 2))
def test_what_is_equal_or_no_number_has_its_place_too(values, axis, descending, k):
    x = np.reshape(values, (2, 3))
    in_order = sort(x, axis=axis, descending=descending)
    rows = on_device(x)
    np.testing.assert_array_equal(ops.sort(rows, axis=axis, descending=descending).numpy(), in_order)
    order = ops.argsort(rows, axis=axis, descending=descending).numpy()
    np.testing.assert_array_equal(np.take_along_axis(x, order, axis), in_order)
    first, indices = ops.topk(rows, k=k, axis=axis, largest=descending)
    np.testing.assert_array_equal(first.numpy(), np.take(in_order, np.arange(k), axis))
    np.testing.assert_array_equal(np.take_along_axis(x, indices.numpy(), axis), first.numpy())
    assert not indices.requires_grad and indices.dtype.kind == "i"


@given(values=TIES, k=st.integers(1, 3), largest=st.booleans())
def test_the_largest_of_long_rows_are_in_groups(values, k, largest):
    x = np.reshape([*values, *values, 0.5], (1, 13))
    with patch.multiple(order, GROUP=2, LONG=4):
        first, indices = ops.topk(on_device(x), k=k, largest=largest)
    np.testing.assert_array_equal(first.numpy(), sort(x, descending=largest)[:, :k])
    np.testing.assert_array_equal(np.take_along_axis(x, indices.numpy(), -1), first.numpy())


@given(values=st.lists(st.integers(0, 2), max_size=6))
def test_a_stable_order_leaves_equal_elements_in_theirs(values):
    x = np.array(values, float)
    rising = ops.argsort(on_device(x), stable=True).numpy()
    falling = ops.argsort(on_device(x), stable=True, descending=True).numpy()
    assert rising.tolist() == sorted(range(len(x)), key=lambda i: x[i])
    assert falling.tolist() == sorted(range(len(x)), key=lambda i: -x[i])


@pytest.mark.parametrize(
    "values", [[0.0, 2.0, 3.0, 0.0, 4.0], [2.0, 0.0, 0.0, 3.0], [0.0], [0.0, 5.0]], ids=str
)
def test_products_of_zeros_have_their_gradients(values):
    for f in (ops.prod, lambda x: ops.cumprod(x, axis=0)):
        testing.gradient_matches_difference(f, on_device(np.array(values)))


def test_nothing_is_left_of_too_small_a_sample():
    x = on_device(np.array([[1.0], [2.0]]))
    with np.errstate(all="raise"):
        assert np.isnan(ops.var(x, axis=1, ddof=1).numpy()).all()
        assert np.isnan(ops.std(x, axis=1, ddof=2).numpy()).all()


@pytest.mark.parametrize("reduce", ["amax", "amin"])
def test_extrema_at_places_are_exact_and_pass_nan_on(reduce):
    extrema_at_places_are_exact(ops.scatter_reduce, reduce)


def test_an_index_out_of_range_on_a_gpu_takes_nan():
    """Where the host would have to wait for it."""
    if testing.DEVICE == "numpy":
        pytest.skip("on the host it raises")
    y = ops.gather(on_device([[1.0, 2.0]]), on_device([[1, 2]]), axis=1)
    assert np.array_equal(to_host(y.data), [[2.0, np.nan]], equal_nan=True)


def test_a_constant_has_no_deviation_and_no_slope():
    a_constant_has_no_deviation_and_no_slope()
