"""Laws of minigrad/op.py and minigrad/ops/axes.py: ops take tensors in lists, integers of every kind as
settings and as values, axes by any name.
"""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from minigrad import Parameter, Tape, Tensor, nn, ops, recomputed
from minigrad.testing import DEVICE, on_device
from tests.minigrad.ops.op_laws import gradients
from tests.minigrad.ops.op_table import TABLE, Case

every_op = pytest.mark.parametrize("case", TABLE, ids=lambda case: case.name)
WRAPPED = ("split", "batch_norm_fixed")  # ask their input for its shape or dtype themselves
direct = pytest.mark.parametrize(
    "case", [case for case in TABLE if case.name not in WRAPPED], ids=lambda case: case.name
)
STRANGE = [[None], "words", {"a": 1}, np.array([object()]), [{1}], np.array(["1"])]
INTEGERS = st.sampled_from([np.int8, np.int64, np.uint8, np.int32])
FEW = max(2, settings().max_examples // 4)  # of each of a hundred ops
host_only = pytest.mark.skipif(DEVICE != "numpy", reason="NumPy's functions take what lies on the host")


# Tensors in lists


@pytest.mark.parametrize("join", [ops.concatenate, ops.stack])
@given(data=st.data())
def test_a_list_or_tuple_of_tensors_is_joined_like_the_tensors(join, data):
    case = next(case for case in TABLE if case.name == join.__name__)
    inputs, settings = data.draw(case.inputs)
    several = data.draw(st.sampled_from([list, tuple]))
    values, slopes = [], []
    for call in (join, lambda *xs, **settings: join(several(xs), **settings)):
        leaves = [Parameter(x) for x in inputs]
        with Tape() as tape:
            y = call(*leaves, **settings)
        tape.backward(y, np.random.default_rng(0).normal(size=y.shape))
        values.append(y.numpy().tolist())
        slopes.append([leaf.grad.tolist() for leaf in leaves if leaf.grad is not None])
    assert values[0] == values[1] and slopes[0] == slopes[1] and len(slopes[0]) == len(inputs)


@host_only
@direct
@settings(max_examples=FEW)
@given(data=st.data())
def test_a_list_of_tensors_that_need_a_gradient_is_no_operand(case: Case, data):
    f, inputs = case.draw(data)
    k = data.draw(st.integers(0, len(inputs) - 1))
    inputs[k] = [[Parameter(np.ones(np.shape(inputs[k])[1:]))] * 2]
    with pytest.raises(TypeError, match=r"ops\.stack"):
        f(*inputs)


@host_only
@direct
@settings(max_examples=FEW)
@given(data=st.data(), strange=st.sampled_from(STRANGE))
def test_what_holds_no_numbers_is_no_operand(case: Case, data, strange):
    if case.name in ("concatenate", "stack") and isinstance(strange, list):
        strange = strange[0]
    f, inputs = case.draw(data)
    inputs[data.draw(st.integers(0, len(inputs) - 1))] = strange
    with pytest.raises(TypeError, match="numbers") as caught:
        f(*inputs)
    assert "\n" not in str(caught.value)


@host_only
def test_numpy_sees_a_constants_numbers_and_is_refused_a_gradient():
    x = Tensor(np.array([[1.0, 2.0]], np.float32))
    assert np.array(x).dtype == np.float32 and np.array([x, x]).shape == (2, 1, 2)
    assert np.asarray(x, float).tolist() == [[1.0, 2.0]] and np.asarray(x) is not None
    with Tape():
        y = Parameter(np.ones(2)) * 2.0
    for expected in (Parameter(np.ones(2)), y):
        for f in (
            np.array,
            np.asarray,
            lambda t: np.array([t, t]),
            lambda t: Tensor([t]),
            lambda t: x + [t, t],
        ):
            with pytest.raises(TypeError, match=r"ops\.stack.*\.numpy\(\)"):
                f(expected)


# A tensor as a value of Python's


@given(
    values=st.lists(st.sampled_from([0.0, 1.0, float("nan")]), max_size=3), other=st.sampled_from([0, 1.0])
)
def test_equality_is_that_of_numpy(values, other):
    x, array = Tensor(on_device(np.array(values))), np.array(values)
    for same, equal in ((x == other, array == other), (x == x, array == array), (other == x, other == array)):
        assert type(same) is Tensor and same.numpy().tolist() == equal.tolist()
    assert (x != x).numpy().tolist() == (array != array).tolist()
    assert (x == None) is False and (x != "x") is True  # noqa: E711
    assert {x: 1}[x] == 1, "a tensor is a key by what it is, not by what it holds"


@given(value=st.sampled_from([0.0, 2.0, float("nan")]), shape=st.sampled_from([(), (1,), (1, 1)]))
def test_one_number_is_true_or_false(value, shape):
    assert bool(Tensor(on_device(np.full(shape, value)))) is bool(value)


@pytest.mark.parametrize("shape", [(0,), (2,), (2, 3)], ids=str)
def test_more_or_less_than_one_number_is_neither_true_nor_false(shape):
    with pytest.raises(ValueError, match="neither true nor false.*any"):
        bool(Tensor(on_device(np.ones(shape))))


def test_a_number_cannot_be_walked_through():
    for walk in (list, tuple, lambda x: [*x]):
        with pytest.raises(TypeError, match=r"without axes.*\.item"):
            walk(Tensor(on_device(np.array(0.0))))


# Integers


def converted(setting, kind):
    """``setting`` with its integers as NumPy's."""
    if isinstance(setting, list | tuple):
        return type(setting)(converted(part, kind) for part in setting)
    plain = isinstance(setting, int) and not isinstance(setting, bool)
    return kind(setting) if plain and np.iinfo(kind).min <= setting else setting


@every_op
@settings(max_examples=FEW)
@given(data=st.data(), kind=INTEGERS)
def test_numpys_integers_are_settings_like_pythons(case: Case, data, kind):
    inputs, settings = data.draw(case.inputs)
    expected = case.op(*inputs, **settings).numpy()
    actual = case.op(*inputs, **{name: converted(value, kind) for name, value in settings.items()}).numpy()
    assert np.array_equal(actual, expected, equal_nan=True)


@direct
@settings(max_examples=FEW)
@given(data=st.data())
def test_whole_numbers_are_values_whatever_their_dtype(case: Case, data):
    """Also where only some of the inputs are integers."""
    f, inputs = case.draw(data)
    floats = [x.round() if x.dtype.kind == "f" else x for x in inputs]
    whole = [x.astype(int) if data.draw(st.booleans()) and x.dtype.kind == "f" else x for x in floats]
    if case.name.startswith("power") and whole[0].dtype.kind == "i":
        return  # NumPy refuses negative powers of integers
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(f(*whole).numpy(), f(*floats).numpy(), rtol=1e-12, atol=1e-12)


@given(kind=INTEGERS, size=st.integers(1, 3), data=st.data())
def test_layers_take_numpys_integers_as_sizes(kind, size, data):
    n, rng = kind(size), np.random.default_rng(0)
    for make in (
        lambda n: nn.Linear(n, n, rng=rng),
        lambda n: nn.Conv2d(n, n, n, stride=n, padding=n, dilation=n, groups=n, rng=rng),
        lambda n: nn.BatchNorm(n),
        lambda n: nn.LayerNorm(n),
        lambda n: nn.Embedding(n, n, rng=rng),
        lambda n: nn.MaxPool2d(n, stride=n),
    ):
        layer, plain = make(n).to(device=DEVICE), make(size).to(device=DEVICE)
        assert repr(layer) == repr(plain)
        x = np.zeros((3, size, 7, 7)) if isinstance(layer, nn.Conv2d | nn.MaxPool2d) else np.zeros((2, size))
        x = on_device(x.astype(int) if isinstance(layer, nn.Embedding) else x)
        assert layer(x).shape == plain(x).shape
    model = nn.Sequential(nn.Tanh(), nn.Tanh(), nn.Tanh())
    assert recomputed(model, n).bounds == recomputed(model, size).bounds


# Axes

REDUCTIONS = [ops.sum, ops.mean, ops.max, ops.min, ops.prod, ops.var, ops.std, ops.logsumexp]


@pytest.mark.parametrize("op", [*REDUCTIONS, ops.softmax, ops.log_softmax], ids=lambda op: op.__name__)
@given(axis=st.sampled_from([0, -1, np.int64(0)]), value=st.floats(-9, 9))
def test_a_number_may_be_reduced_along_its_first_axis_as_in_numpy(op, axis, value):
    along = {"axis": axis} if op in REDUCTIONS else {}
    expected = op(on_device([value]), **along)
    y = op(on_device(np.array(value)), axis=axis)
    assert y.shape == () and y.item() == expected.numpy().item()
    assert gradients(lambda x: op(x, axis=axis), value) == gradients(lambda x: op(x, **along), [value])[0]


@pytest.mark.parametrize("op", REDUCTIONS, ids=lambda op: op.__name__)
@given(data=st.data())
def test_axes_may_be_a_list_of_any_integers(op, data):
    x = np.random.default_rng(0).normal(size=(2, 3, 4))
    axes = data.draw(st.lists(st.integers(0, 2), unique=True))
    named = [data.draw(st.sampled_from([a, a - 3, np.int8(a)])) for a in axes]
    expected = op(on_device(x), axis=tuple(axes)).numpy()
    np.testing.assert_array_equal(op(on_device(x), axis=named).numpy(), expected)


@pytest.mark.parametrize("shape", [(3, 0), (0, 3), (0,), (2, 0, 3)], ids=str)
@given(data=st.data())
def test_the_softmax_family_over_nothing(shape, data):
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    rest = tuple(n for i, n in enumerate(shape) if i != axis % len(shape))
    for op in (ops.softmax, ops.log_softmax, ops.logsumexp):
        x = Parameter(on_device(np.zeros(shape)))
        with Tape() as tape:
            y = op(x, axis=axis)
        tape.backward(y, 1.0)
        assert y.shape == (rest if op is ops.logsumexp else shape)
        assert (y.numpy() == -np.inf).all() and x.grad is not None and x.grad.shape == shape


@given(rows=st.integers(0, 6), data=st.data())
def test_positions_of_a_split_rise_and_all_rows_are_there_once(rows, data):
    x, positions = np.arange(rows), data.draw(st.lists(st.integers(-7, 7), max_size=3))
    from_front = [p + rows if p < 0 else p for p in positions]
    if [0, *from_front, rows] == sorted([0, *from_front, rows]):
        pieces = ops.split(on_device(x), sections=positions)
        assert [len(p) for p in pieces] == np.diff([0, *from_front, rows]).tolist()
        assert np.concatenate([p.numpy() for p in pieces]).tolist() == x.tolist()
    else:
        with pytest.raises(ValueError, match=rf"rise from 0 to {rows}"):
            ops.split(on_device(x), sections=positions)


# Arrays of another machine, and Python's own sequences


@host_only
@every_op
def test_an_array_of_the_other_byte_order_is_its_numbers(case):
    """``tensor_base.as_array`` turns it, once for all ops."""

    def other(x):
        return (
            x.astype(x.dtype.newbyteorder("S")) if isinstance(x, np.ndarray) and x.dtype.kind in "iuf" else x
        )

    @given(case.inputs)
    @settings(max_examples=FEW)
    def has_the_same_value(drawn):
        inputs, given_settings = drawn
        y = case.op(*inputs, **given_settings).data
        turned = case.op(*map(other, inputs), **given_settings).data
        assert turned.dtype == y.dtype and turned.dtype.isnative
        np.testing.assert_allclose(turned, y, rtol=1e-5, atol=1e-5)  # in other memory, by other sums

    has_the_same_value()


def test_a_range_is_an_index():
    x = Parameter(np.arange(5.0))
    with Tape() as tape:
        y = x[range(1, 4)] * 2 + x[(range(3),)]
    tape.backward(y, np.ones(3))
    np.testing.assert_array_equal(y.data, [2, 5, 8])
    np.testing.assert_array_equal(x.grad, [1, 3, 3, 2, 0])
