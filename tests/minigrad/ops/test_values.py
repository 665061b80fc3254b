"""Laws of minigrad/ops/elementwise.py, activation.py, shape.py, reduce.py, softmax.py, loss.py, linear.py
and dropout.py: what the ops compute, against formulas written out, NumPy, or a loop.
"""

import math

import numpy as np
import pytest

from minigrad import Parameter, Tape, ops
from minigrad.device import to_host
from minigrad.testing import on_device
from tests.minigrad.ops import norm_laws

X = np.array([[-2.5, -1.0, 0.0], [0.5, 1.0, 3.0]])
Y = np.array([1.5, 0.5, -2.0])


def test_a_linear_layer_takes_the_relu_behind_it():
    rng = np.random.default_rng(0)
    x, g, w, bias = (rng.normal(size=shape) for shape in ((40, 5), (40, 3), (3, 5), (3,)))
    with_relu = lambda *inputs, relu=False: ops.linear(*inputs, activation="relu" if relu else "none")  # noqa: E731
    norm_laws.takes_the_relu_behind_it(with_relu, g, x, w, bias)
    norm_laws.takes_the_relu_behind_it(with_relu, g[0], x[0], w, bias)


def element_by_element(f):
    return lambda x: np.array([[f(float(v)) for v in row] for row in x])


def normalised(x, axis):
    return (x - x.mean(axis, keepdims=True)) / np.sqrt(x.var(axis, keepdims=True) + 1e-5)


def softmax(x):
    return np.exp(x) / np.exp(x).sum(-1, keepdims=True)


ONE = {
    ops.negative: lambda x: -x,
    ops.abs: np.abs,
    ops.exp: np.exp,
    ops.tanh: np.tanh,
    ops.sigmoid: element_by_element(lambda v: 1 / (1 + math.exp(-v))),
    ops.relu: element_by_element(lambda v: max(v, 0.0)),
    ops.leaky_relu: element_by_element(lambda v: v if v > 0 else 0.01 * v),
    ops.gelu: element_by_element(lambda v: v * math.erfc(-v / math.sqrt(2)) / 2),
    ops.silu: element_by_element(lambda v: v / (1 + math.exp(-v))),
    ops.softplus: element_by_element(lambda v: math.log(1 + math.exp(v))),
    ops.log_sigmoid: element_by_element(lambda v: -math.log(1 + math.exp(-v))),
    ops.elu: element_by_element(lambda v: v if v > 0 else math.exp(v) - 1),
    ops.hardswish: element_by_element(lambda v: v * min(max(v + 3, 0), 6) / 6),
    ops.sin: element_by_element(math.sin),
    ops.cos: element_by_element(math.cos),
    ops.sum: np.sum,
    ops.mean: np.mean,
    ops.max: np.max,
    ops.min: np.min,
    ops.var: np.var,
    ops.logsumexp: lambda x: np.log(np.exp(x).sum()),
    ops.softmax: softmax,
    ops.log_softmax: lambda x: np.log(softmax(x)),
    ops.flatten: np.ravel,
    ops.transpose: np.transpose,
}
TWO = {
    ops.add: np.add,
    ops.subtract: np.subtract,
    ops.multiply: np.multiply,
    ops.divide: np.divide,
    ops.maximum: np.maximum,
    ops.minimum: np.minimum,
    ops.matmul: np.matmul,
}


@pytest.mark.parametrize("op", ONE, ids=lambda op: op.__name__)
def test_ops_of_one_array(op):
    np.testing.assert_allclose(op(on_device(X)).numpy(), ONE[op](X), rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("op", TWO, ids=lambda op: op.__name__)
def test_ops_of_two_arrays(op):
    np.testing.assert_allclose(op(on_device(X), on_device(Y)).numpy(), TWO[op](X, Y), rtol=1e-15)


def test_gelu_in_its_tanh_form_is_near_the_exact_one():
    book = element_by_element(
        lambda v: 0.5 * v * (1 + math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3)))
    )
    y = ops.gelu(on_device(X), approximate="tanh").numpy()
    np.testing.assert_allclose(y, book(X), rtol=1e-14, atol=1e-15)
    np.testing.assert_allclose(y, ops.gelu(on_device(X)).numpy(), atol=1e-3)


def test_softplus_is_linear_above_its_threshold():
    x, g = Parameter(on_device([-1.0, 1.9, 2.1])), np.ones(3)
    with Tape() as tape:
        y = ops.softplus(x, beta=2, threshold=4)
    tape.backward(y, on_device(g))
    expected = [math.log1p(math.exp(-2)) / 2, math.log1p(math.exp(3.8)) / 2, 2.1]
    np.testing.assert_allclose(y.numpy(), expected, rtol=1e-14)
    assert x.grad is not None
    slopes = [1 / (1 + math.exp(2)), 1 / (1 + math.exp(-3.8)), 1]
    np.testing.assert_allclose(to_host(x.grad), slopes, rtol=1e-14)


def test_hardswish_has_the_slopes_of_pytorch_at_its_ends():
    x = Parameter(on_device([-4.0, -3.0, 0.0, 3.0, 4.0]))
    with Tape() as tape:
        y = ops.hardswish(x)
    tape.backward(y, 1.0)
    assert x.grad is not None
    assert to_host(x.grad).tolist() == [0, 0, 0.5, 1, 1]


def test_cross_entropy_is_the_mean_of_minus_the_log_of_the_labels_probability():
    expected = -(math.log(softmax(X)[0, 2]) + math.log(softmax(X)[1, 0])) / 2
    assert ops.cross_entropy(on_device(X), on_device([2, 0])).item() == pytest.approx(expected, rel=1e-14)


def test_binary_cross_entropy_is_the_mean_of_minus_the_log_of_the_targets_probability():
    t = np.array([[0, 1, 0.25], [1, 0, 0.5]])
    p = 1 / (1 + np.exp(-X))
    expected = -(t * np.log(p) + (1 - t) * np.log(1 - p)).mean()
    result = ops.binary_cross_entropy_with_logits(on_device(X), on_device(t)).item()
    assert result == pytest.approx(expected, rel=1e-14)


def test_mse_is_the_mean_of_the_squared_differences():
    assert ops.mse(on_device(X), on_device(2 * X)).item() == pytest.approx((X * X).mean(), rel=1e-15)


def test_norms_give_mean_zero_and_variance_one_times_weight_plus_bias():
    weight, bias = on_device(Y), on_device(Y + 1)
    for op, axis in ((ops.batch_norm, 0), (ops.layer_norm, -1)):
        expected = normalised(X, axis) * Y + (Y + 1)
        np.testing.assert_allclose(op(on_device(X), weight, bias).numpy(), expected, rtol=1e-13, atol=1e-14)


def test_shape_ops_place_elements_as_numpy_does():
    x = on_device(X)
    pairs = [
        (ops.pad(x, width=((1, 0), (0, 2)), value=7), np.pad(X, ((1, 0), (0, 2)), constant_values=7)),
        (ops.pad(x, width=1), np.pad(X, 1)),
        (ops.flatten(ops.reshape(x, shape=(1, 2, 3)), start_axis=-3, end_axis=1), X),
        (ops.concatenate(x, x, axis=1), np.concatenate([X, X], 1)),
        (ops.stack(x, x, axis=-1), np.stack([X, X], -1)),
        (ops.split(ops.reshape(x, shape=6), sections=3)[1], X.reshape(6)[2:4]),
        (ops.broadcast_to(x, shape=(2, 2, 3)), np.broadcast_to(X, (2, 2, 3))),
        (ops.embedding(x, on_device([[1, 1], [0, 1]])), X[[[1, 1], [0, 1]]]),
        (ops.where(on_device(X > 0), x, 5.0), np.where(X > 0, X, 5)),
        (ops.clip(x, low=-1, high=1), np.clip(X, -1, 1)),
        (ops.linear(x, on_device(np.ones((2, 3))), on_device([1.0, 2.0])), X.sum(1, keepdims=True) + [1, 2]),
    ]
    for actual, expected in pairs:
        np.testing.assert_array_equal(actual.numpy(), expected)


def test_nothing_overflows_where_the_result_is_finite():
    big = on_device([[1000.0, -1000.0, 999.0]])
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        assert ops.sigmoid(big).numpy().tolist() == [[1, 0, 1]]
        assert ops.logsumexp(big).item() == pytest.approx(1000 + math.log(1 + math.exp(-1)))
        assert ops.log_softmax(big).numpy()[0, 1] == pytest.approx(-2000 - math.log(1 + math.exp(-1)))
        assert ops.cross_entropy(big, on_device([1])).item() == pytest.approx(
            2000 + math.log(1 + math.exp(-1))
        )
        assert ops.binary_cross_entropy_with_logits(big, on_device([[0.0, 1, 1]])).item() == pytest.approx(
            2000 / 3
        )
        assert to_host(ops.gelu(big, approximate="tanh").data).tolist() == [[1000, 0, 999]]
        for op in (ops.gelu, ops.silu, ops.hardswish, ops.softplus):
            assert op(big).numpy().tolist() == [[1000, 0, 999]]
        assert ops.elu(big).numpy().tolist() == [[1000, -1, 999]]
        assert ops.log_sigmoid(big).numpy().tolist() == [[0, -1000, 0]]


def test_dropout_keeps_the_mean_and_drops_the_share():
    y = ops.dropout(on_device(np.ones(10_000)), p=0.2, rng=np.random.default_rng(0)).numpy()
    assert set(np.unique(y)) == {0.0, 1.25}
    assert 0.19 < (y == 0).mean() < 0.21  # the standard deviation is 0.004


def test_dropout_draws_the_same_mask_in_every_memory_layout():
    x = np.arange(1.0, 121).reshape(2, 3, 4, 5)
    first, second = (
        ops.dropout(on_device(a), p=0.5, rng=np.random.default_rng(0)).numpy() for a in (x, x.T.copy().T)
    )
    assert np.array_equal(first, second)
