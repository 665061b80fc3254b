"""Laws of minigrad/ops/softmax.py, loss.py, reduce.py, elementwise.py, minigrad/ops/fast/exponential.py,
loss.py, normal_distribution.py and reduce.py: of large offsets, long tails, infinities, NaN and ties
nothing is lost that the dtype can hold.
"""

from functools import partial

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import example, given

from minigrad import ops, testing
from tests.minigrad.ops import extremes
from tests.minigrad.ops.fast.fast_form_laws import in_both_forms

DTYPES = st.sampled_from([np.float32, np.float64])
ORDERS = st.sampled_from([testing.c_order, testing.fortran_order, testing.with_gaps, testing.reversed_order])
OFFSETS = st.sampled_from([0.0, 1e2, -1e4, 1e6, 1e8]) | st.floats(-1e8, 1e8)
SPREADS = st.sampled_from([0.0, 1e-2, 1.0, 16.0, 60.0])
ODD = [np.nan, np.inf, -np.inf, -2.0, -1.0, 0.0, -0.0, 0.5, 1.0, 3.0]


@st.composite
def logits(draw):
    """(samples, classes) on any level, spread little or much, in any memory order."""
    shape = draw(st.integers(1, 4)), draw(st.integers(1, 8))
    x = np.random.default_rng(draw(st.integers(0, 2**16))).normal(size=shape)
    return draw(ORDERS)((draw(OFFSETS) + draw(SPREADS) * x).astype(draw(DTYPES)))


@st.composite
def odd(draw, *shape, values=ODD, dtype=None):
    """An array of few values, the strange ones among them: many ties."""
    drawn = draw(
        st.lists(st.sampled_from(values), min_size=int(np.prod(shape)), max_size=int(np.prod(shape)))
    )
    return draw(ORDERS)(np.reshape(drawn, shape).astype(dtype or draw(DTYPES)))


@st.composite
def tails(draw):
    elements = st.floats(-1e3, 1e3) | st.sampled_from(
        [-np.inf, np.inf, 0.0, -18.0, -19.5, -40.0, -80.0, -700.0]
    )
    return np.array(draw(st.lists(elements, min_size=1, max_size=6))).astype(draw(DTYPES))


@given(x=logits(), data=st.data())
def test_the_softmax_family_survives_a_common_offset(x, data):
    axis = data.draw(st.integers(-2, 1))
    in_both_forms(extremes.softmax_survives_offsets, ops.softmax, ops.log_softmax, x, axis)
    axis = data.draw(st.sampled_from([None, 0, -1, (0, 1)]))
    extremes.logsumexp_survives_offsets(ops.logsumexp, x, axis)


@given(seed=st.integers(0, 2**16), offset=OFFSETS, spread=SPREADS, dtype=DTYPES, order=ORDERS)
def test_the_variance_survives_a_common_offset(seed, offset, spread, dtype, order):
    rng = np.random.default_rng(seed)
    x = order((offset + spread * rng.normal(size=(rng.integers(1, 200), 3))).astype(dtype))
    for axis in (0, 1, None):
        extremes.variance_survives_offsets(ops.var, x, axis)


@pytest.mark.parametrize(("op", "axis"), [(ops.batch_norm, 0), (ops.layer_norm, 1)])
@given(seed=st.integers(0, 2**16), offset=st.sampled_from([0.0, 10.0, -1e3]), dtype=DTYPES, order=ORDERS)
def test_normalisations_survive_a_common_offset(op, axis, seed, offset, dtype, order):
    rng = np.random.default_rng(seed)
    n, c = rng.integers(2, 9, size=2) if seed % 2 else rng.permutation([int(rng.integers(60, 300)), 4])
    x, g, (w, b) = offset + rng.normal(size=(n, c)), rng.normal(size=(n, c)), rng.normal(size=(2, c))
    arrays = [a.astype(dtype) for a in (order(x), w, b, order(g))]
    extremes.normalisation_survives_offsets(op, *arrays, axis=axis)


@given(x=logits(), data=st.data())
def test_cross_entropy_survives_a_common_offset(x, data):
    label = st.integers(0, x.shape[1] - 1)
    labels = data.draw(st.lists(label, min_size=len(x), max_size=len(x)))
    in_both_forms(extremes.cross_entropy_survives_offsets, ops.cross_entropy, x, np.array(labels))


@given(row=st.integers(0, 4).flatmap(lambda n: odd(n, values=[np.nan, np.inf, -np.inf, -np.inf, 0.0, 3.0])))
def test_logsumexp_knows_infinities(row):
    in_both_forms(extremes.logsumexp_knows_infinities, ops.logsumexp, row)


@given(x=tails())
def test_sigmoid_and_gelu_keep_their_tails(x):
    in_both_forms(extremes.sigmoid_keeps_its_tail, ops.sigmoid, x)
    by_tanh = partial(ops.gelu, approximate="tanh")
    in_both_forms(extremes.gelu_keeps_its_tail, by_tanh, np.clip(x, -30, 30))
    in_both_forms(extremes.exact_gelu_keeps_its_tail, ops.gelu, x)


@given(x=tails(), data=st.data())
def test_binary_cross_entropy_keeps_its_tail(x, data):
    x = np.clip(x, -900, 900)
    targets = data.draw(st.lists(st.sampled_from([0.0, 1.0, 0.25]), min_size=x.size, max_size=x.size))
    law = extremes.binary_cross_entropy_keeps_its_tail
    in_both_forms(law, ops.binary_cross_entropy_with_logits, x, np.array(targets).astype(x.dtype))


@given(dtype=DTYPES, data=st.data())
def test_powers_at_zero_below_it_and_beyond(dtype, data):
    bases, exponents = [*ODD, -3.0, 2.0], [-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0]
    x, y = data.draw(odd(5, values=bases, dtype=dtype)), data.draw(odd(5, values=exponents, dtype=dtype))
    extremes.power_has_pytorchs_gradients(ops.power, x, y)


@given(dtype=DTYPES, sign=st.sampled_from([-1, 1]), far=st.floats(0, 1), between=st.floats(0, 1))
def test_the_gradient_of_a_quotient_overflows_last(dtype, sign, far, between):
    """The square of a denominator of 10 ** exponent leaves the range, and the quotients are within it."""
    reach = 35 if dtype is np.float32 else 300
    exponent = reach * (0.6 + 0.3 * far)
    least = 2 * exponent - reach
    y = 1.5 * 10.0 ** (sign * np.array([exponent, exponent]))
    x = 1.5 * 10.0 ** (sign * np.array([least + between * (reach - least), reach]))
    extremes.quotients_gradient_overflows_last(ops.divide, x.astype(dtype), y.astype(dtype))


@given(dtype=DTYPES, data=st.data())
def test_nan_passes_and_what_is_not_taken_gets_nothing(dtype, data):
    x, y, g = (data.draw(odd(2, 3, dtype=dtype)) for _ in range(3))
    extremes.follows(ops.relu, [extremes.relu_slope], g, x)
    extremes.follows(lambda x: ops.clip(x, low=-1, high=1), [extremes.clip_slope], g, x)
    finite = np.nan_to_num(g)  # an infinite gradient times 0 is NaN, there as here
    in_both_forms(extremes.follows, ops.abs, [extremes.abs_slope], finite, x)
    shares = [extremes.larger_share, lambda x, y, g: extremes.larger_share(y, x, g)]
    extremes.follows(ops.maximum, shares, g, x, y)
    extremes.follows(ops.minimum, shares[::-1], g, x, y)


@given(dtype=DTYPES, kind=st.sampled_from([bool, int, float]), data=st.data())
def test_where_shields_what_it_does_not_take(dtype, kind, data):
    condition = data.draw(odd(2, 3, values=[0, 0, 1, 2, -3])).astype(kind)
    x, y, g = (data.draw(odd(2, 3, dtype=dtype)) for _ in range(3))
    extremes.choice_shields(ops.where, condition, x, y, g)


@given(
    dtype=DTYPES,
    windows=st.sampled_from([(2, 2, 0), (2, 1, 0), (3, 1, 0), (2, 2, 1), (2, 1, 1), (3, 2, 1)]),
    data=st.data(),
)
def test_max_pooling_takes_the_first_largest_or_the_last_nan(dtype, windows, data):
    kernel, stride, padding = windows
    size = (4 + 2 * padding - kernel) // stride + 1
    values = data.draw(st.sampled_from([ODD, [-np.inf, -np.inf, -np.inf, 1.0, np.nan]]))
    x, g = (
        data.draw(odd(1, 2, 4, 4, values=values, dtype=dtype)),
        data.draw(odd(1, 2, size, size, dtype=dtype)),
    )
    in_both_forms(extremes.pooling_takes_one, ops.max_pool2d, x, g, kernel, stride, padding)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("padding", [0, 1])
def test_a_window_of_minus_infinities_has_a_gradient(dtype, padding):
    x, size = np.full((1, 1, 4, 4), -np.inf, dtype), 2 + padding
    g = np.arange(1, size * size + 1).reshape(1, 1, size, size).astype(dtype)
    in_both_forms(extremes.pooling_takes_one, ops.max_pool2d, x, g, 2, 2, padding)


@given(row=st.lists(st.sampled_from([np.inf, np.inf, 2.0, 0.5, 3.0]), min_size=1, max_size=6))
@example(row=[1e-200, 1e-200, 2.0])
@example(row=[1e-200, 0.0, 1e-200])
def test_products_are_not_divided(row):
    law, g = extremes.products_have_the_gradients_of_their_factors, np.arange(1.0, len(row) + 1)
    in_both_forms(law, ops.prod, ops.cumprod, np.array(row), g)


@pytest.mark.parametrize("op", [ops.var, ops.std])
@pytest.mark.parametrize("shape", [(200_000, 2), (2, 100_000, 2)], ids=str)
def test_the_variance_of_many_rows_has_the_digits_of_its_dtype(op, shape):
    x = np.random.default_rng(0).uniform(1, 2, shape).astype(np.float32)
    axis = len(shape) - 2
    exact = getattr(np, op.__name__)(x.astype(np.float64), axis=axis)
    extremes.near(op(x, axis=axis).numpy(), exact, 16 * np.finfo(np.float32).eps * exact, op.__name__)


@pytest.mark.parametrize(("op", "sign"), [(ops.max, 1), (ops.min, -1)])
@given(data=st.data())
def test_equal_extrema_share_and_so_do_nan(op, sign, data):
    in_both_forms(extremes.extremum_is_shared, op, data.draw(odd(data.draw(st.integers(1, 5)))), sign)
