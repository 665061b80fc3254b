"""Laws of minigrad/tensor.py and op.py: operators and methods are the ops; tensors mix with arrays,
numbers and lists on either side.
"""

import operator
from inspect import unwrap

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from minigrad import Parameter, Tape, Tensor, ops, testing
from minigrad.device import to_host
from minigrad.op import lift, lift_two
from minigrad.testing import on_device
from tests.double import ON_CUDA
from tests.minigrad.ops import op_laws
from tests.minigrad.ops.op_table import TABLE

X = np.array([[1.5, 0.5, 2.0], [0.25, 3.0, 1.0]])

SPELLINGS = {
    "exp": (lambda x: x.exp(), ops.exp),
    "log": (lambda x: x.log(), ops.log),
    "sqrt": (lambda x: x.sqrt(), ops.sqrt),
    "tanh": (lambda x: x.tanh(), ops.tanh),
    "sigmoid": (lambda x: x.sigmoid(), ops.sigmoid),
    "relu": (lambda x: x.relu(), ops.relu),
    "clip": (lambda x: x.clip(1, 2), lambda x: ops.clip(x, low=1, high=2)),
    "sum": (lambda x: x.sum(1, True), lambda x: ops.sum(x, axis=1, keepdims=True)),
    "mean": (lambda x: x.mean(axis=0), lambda x: ops.mean(x, axis=0)),
    "max": (lambda x: x.max(-1), lambda x: ops.max(x, axis=-1)),
    "min": (lambda x: x.min(), ops.min),
    "var": (lambda x: x.var((0, 1)), lambda x: ops.var(x, axis=(0, 1))),
    "prod": (lambda x: x.prod(0), lambda x: ops.prod(x, axis=0)),
    "var of a sample": (lambda x: x.var(0, ddof=1), lambda x: ops.var(x, axis=0, ddof=1)),
    "std": (lambda x: x.std(1), lambda x: ops.std(x, axis=1)),
    "cumsum": (lambda x: x.cumsum(0), lambda x: ops.cumsum(x, axis=0)),
    "cumprod": (lambda x: x.cumprod(1), lambda x: ops.cumprod(x, axis=1)),
    "sort": (lambda x: x.sort(0, True), lambda x: ops.sort(x, axis=0, descending=True)),
    "argsort": (lambda x: x.gather(x.argsort(), 1), ops.sort),
    "topk": (lambda x: x.topk(2)[0], lambda x: ops.sort(x, descending=True)[:, :2]),
    "flip": (lambda x: x.flip(1), lambda x: ops.flip(x, axis=1)),
    "roll": (lambda x: x.roll(1, 0), lambda x: ops.roll(x, shift=1, axis=0)),
    "repeat": (lambda x: x.repeat(2, 0), lambda x: ops.repeat(x, repeats=2, axis=0)),
    "diagonal": (lambda x: x.diagonal(1), lambda x: ops.diagonal(x, offset=1)),
    "tril": (lambda x: x.tril(-1), lambda x: ops.tril(x, k=-1)),
    "triu": (lambda x: x.triu(1), lambda x: ops.triu(x, k=1)),
    "masked_fill": (
        lambda x: x.masked_fill(x.data > 1, -1),
        lambda x: ops.masked_fill(x, x.data > 1, value=-1),
    ),
    "reshape": (lambda x: x.reshape(3, -1), lambda x: ops.reshape(x, shape=(3, -1))),
    "reshape by tuple": (lambda x: x.reshape((6,)), lambda x: ops.reshape(x, shape=6)),
    "transpose": (lambda x: x.transpose(1, 0), lambda x: ops.transpose(x, axes=(1, 0))),
    "transpose by tuple": (lambda x: x.transpose((1, 0)), ops.transpose),
    "transpose all": (lambda x: x.transpose(), ops.transpose),
    "T": (lambda x: x.T, ops.transpose),
    "squeeze": (lambda x: x[None].squeeze(0), lambda x: ops.squeeze(x[None], axis=0)),
    "flatten": (lambda x: x.flatten(), ops.flatten),
    "getitem": (lambda x: x[1, ::2], lambda x: ops.getitem(x, index=(1, slice(None, None, 2)))),
    "getitem by tensor": (lambda x: x[Tensor(on_device([1, 1]))], lambda x: x[on_device([1, 1])]),
    "neg": (lambda x: -x, ops.negative),
    "abs": (lambda x: abs(x), ops.abs),
    "split": (lambda x: x[:, 1:], lambda x: ops.split(x, sections=[1], axis=1)[1]),
}


def value_and_gradient(f):
    x = Parameter(on_device(X))
    with Tape() as tape:
        y = f(x)
    tape.backward(y, 1.0)
    assert x.grad is not None
    return y.numpy().tolist(), x.grad.tolist()


@pytest.mark.parametrize("name", SPELLINGS)
def test_methods_and_operators_are_the_ops(name):
    method, op = SPELLINGS[name]
    assert value_and_gradient(method) == value_and_gradient(op)


OPERATORS = {
    operator.add: ops.add,
    operator.sub: ops.subtract,
    operator.mul: ops.multiply,
    operator.truediv: ops.divide,
    operator.pow: ops.power,
}
OTHERS = [
    2,
    2.0,
    np.float64(2),
    np.float32(2),
    np.int64(2),
    np.array(2.0),
    np.array([2.0, 1.0, 0.5]),
    [2.0, 1, 3],
]


@pytest.mark.parametrize("other", OTHERS, ids=lambda x: f"{type(x).__name__}{np.shape(x)}")
@pytest.mark.parametrize("symbol", OPERATORS, ids=lambda s: s.__name__)
def test_a_tensor_mixes_with_numbers_arrays_and_lists_on_either_side(symbol, other):
    other = on_device(other) if isinstance(other, np.ndarray) else other
    array = np.array(to_host(other) if hasattr(other, "shape") else other, float)
    for f, expected in (
        (lambda x: symbol(x, other), symbol(X, array)),
        (lambda x: symbol(other, x), symbol(array, X)),
    ):
        y = f(Tensor(on_device(X)))
        assert type(y) is Tensor
        assert y.dtype == np.float64
        tolerance = 4 * np.finfo(float).eps if ON_CUDA and symbol is operator.pow else 0  # up to 2 ulps off
        np.testing.assert_allclose(y.numpy(), expected, tolerance)
        testing.gradient_matches_difference(f, on_device(X))


@pytest.mark.parametrize("other", [np.ones((3, 2)), [[1.0, 0], [0, 1], [2, 2]]], ids=["array", "list"])
def test_matmul_mixes_too(other):
    other = on_device(other) if isinstance(other, np.ndarray) else other
    array = np.asarray(to_host(other) if hasattr(other, "shape") else other)
    x = Tensor(on_device(X))
    np.testing.assert_array_equal((x @ other).numpy(), X @ array)
    np.testing.assert_array_equal((other @ x).numpy(), array @ X)


@given(
    x=hnp.arrays(np.float32, (2, 3), elements=st.sampled_from([-1.0, 0.5, 2.0, np.inf, np.nan])),
    symbol=st.sampled_from([operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]),
    other=st.sampled_from([0.5, np.float64(2), [0.5, 2.0, 1.0], np.array([[0.5], [2.0]])]),
)
def test_comparisons_are_numpys_and_constants(x, symbol, other):
    p = Parameter(on_device(x))
    there = on_device(other) if isinstance(other, np.ndarray) else other
    with Tape():
        for actual, expected in (
            (symbol(p, there), symbol(x, np.asarray(other))),
            (symbol(p, Tensor(on_device(x))), symbol(x, x)),
            (symbol(there, p), symbol(np.asarray(other), x)),
        ):
            assert type(actual) is Tensor and actual.dtype == bool and not actual.requires_grad
            assert actual.numpy().tolist() == expected.tolist()


@given(
    x=hnp.arrays(np.float32, (2, 3, 2), elements=st.sampled_from([-1.0, 0.5, 2.0])),
    axis=st.none() | st.integers(-3, 2),
    keepdims=st.booleans(),
)
def test_places_of_extrema_are_numpys(x, axis, keepdims):
    t = Tensor(on_device(x))
    assert t.argmax(axis, keepdims).numpy().tolist() == np.argmax(x, axis, keepdims=keepdims).tolist()
    assert (
        t.argmin(axis, keepdims=keepdims).numpy().tolist() == np.argmin(x, axis, keepdims=keepdims).tolist()
    )


def test_a_tensor_of_another_dtype_has_a_gradient_of_its_own():
    x = Parameter(on_device(np.array([1.5, -2.5], np.float32)))
    with Tape() as tape:
        loss = (x.astype(np.float64) * x.astype(int)).sum()
    tape.backward(loss)
    assert loss.dtype == np.float64 and loss.item() == 6.5
    assert x.grad is not None and x.grad.dtype == np.float32 and x.grad.tolist() == [1, -2]


@pytest.mark.parametrize("symbol", [operator.lt, operator.ge])
@pytest.mark.parametrize("other", ["a", None])
def test_what_is_no_number_cannot_be_compared(symbol, other):
    with pytest.raises(TypeError, match="not supported between instances of 'Tensor'"):
        symbol(Tensor(on_device(X)), other)


def test_an_operation_of_numbers_alone_is_a_tensor():
    for y in (ops.add(1.0, 2.0), ops.exp(0.0), ops.sum([1.0, 2.0]), ops.relu(1.0), ops.multiply(2, 3)):
        assert type(y) is Tensor
        assert y.shape == () and y.dtype is not None


NAMES = {
    *("add", "subtract", "multiply", "divide", "power", "maximum", "minimum"),
    *("matmul", "mse", "cross_entropy", "embedding"),
}
BINARY = [case for case in TABLE if case.name in NAMES]


@pytest.mark.parametrize("case", BINARY, ids=lambda case: case.name)
@given(data=st.data())
def test_the_lift_written_out_for_two_inputs_is_the_general_one(case, data):
    inputs, _ = data.draw(case.inputs)
    op_laws.lifts_agree((lift, lift_two), unwrap(case.op), *inputs)


@pytest.mark.parametrize("number", [2.0, np.float64(3), [1.0, 2.0, 3.0]], ids=str)
def test_the_lifts_agree_beside_numbers(number):
    for function in (unwrap(ops.multiply), unwrap(ops.power), unwrap(ops.maximum)):
        op_laws.lifts_agree((lift, lift_two), function, on_device(X), number)
        op_laws.lifts_agree((lift, lift_two), function, number, on_device(X))
