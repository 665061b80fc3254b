"""Each law of ops turns red on an op with the bug it is there for."""

from functools import cache, partial
from inspect import unwrap

import numpy as np
import pytest

from minigrad import nn, op, ops, testing
from minigrad.op import lift
from minigrad.testing import on_device
from tests.bugs.mutant import mutant
from tests.minigrad.ops import op_laws

X = np.random.default_rng(0).uniform(0.5, 2, (4, 3))
IMAGES = np.random.default_rng(1).normal(size=(2, 3, 4, 5))
W = np.ones(3)


def stale_once(f):
    """once, with a flag instead of a key: the second g gets the first one's result."""
    last = []

    def shared(g):
        if not last:
            last.append(f(g))
        return last[0]

    return shared


def elementwise(*change):
    return mutant("minigrad.ops.elementwise", change)


@cache  # its loops are compiled once
def module_of_stale_batch_norm():
    once = ("@once", "from tests.bugs.test_broken_ops import stale_once\n\n    @stale_once")
    return mutant("minigrad.ops.batch_norm", once)


def stale_batch_norm(*inputs):
    return module_of_stale_batch_norm().batch_norm(*inputs)


@op
def square_in_place(x):
    y = x * x

    def to_x(g):
        g *= 2 * x
        return g

    return y, (to_x,)


@op
def relu_in_place(x):
    x[...] = np.maximum(x - 1, 0)
    return x, (lambda g: g * (x > 0),)


@op
def half_with_a_buffer(x):
    buffer = np.zeros_like(x)

    def to_x(g):
        np.multiply(g, 0.5, out=buffer)
        return buffer

    return x * 0.5, (to_x,)


@op
def scale_that_counts_its_calls(x):
    calls = []

    def to_x(g):
        calls.append(g)
        return g * len(calls)

    return x * 1.0, (to_x,)


@op
def scale_that_gives_its_input_away(x):
    return 0.5 * x * x, (lambda g: x[...],)


@op
def mean_without_its_count(x):
    return x.mean(), (lambda g: g + 0 * x,)


@op
def doubled_by_a_wide_constant(x):
    return x * 2, (lambda g: g * np.full(g.shape, 2.0),)


GRADIENTS = {
    "a wrong sign": (elementwise("lambda g: -g * (x / y / y)", "lambda g: g * (x / y / y)").divide, X, X + 1),
    "a square forgotten": (elementwise("g * (1 - y * y)", "g * (1 - y)").tanh, X),
    "the logarithm of the wrong one": (
        elementwise("xp.where(constant, 1, x)", "xp.where(constant, 1, y)").power,
        X,
        X + 1,
    ),
    "operands exchanged": (
        elementwise(
            "return x * y, (lambda g: g * y, lambda g: g * x)",
            "return x * y, (lambda g: g * x, lambda g: g * y)",
        ).multiply,
        X,
        X + 1,
    ),
    "a coefficient of gelu": (
        partial(mutant("minigrad.ops.activation", ("0.134145", "0.044715 ")).gelu, approximate="tanh"),
        X,
    ),
    "the count of a mean": (mean_without_its_count, X),
    "the gradient through the mean": (
        mutant("minigrad.ops.batch_norm", ("factor * total / max(n, 1)", "0 * total")).batch_norm,
        X,
        W,
        W,
    ),
    "the sum in softmax": (
        mutant("minigrad.ops.softmax", ("(g - (g * y).sum(axis=axes, keepdims=True)) * y", "g * y")).softmax,
        X,
    ),
    "repeated indices": (
        lambda x: mutant("minigrad.ops.shape", ("if not basic and", "if False and")).getitem(
            x, index=(np.array([0, 0, 1]), np.array([0, 0, 1]))
        ),
        X,
    ),
    "a transposed order": (
        lambda x: mutant(
            "minigrad.ops.shape", ("lambda g: g.transpose(back)", "lambda g: g.transpose(order)")
        ).transpose(x, axes=(1, 2, 0)),
        IMAGES[0, :, :3, :3],
    ),
    "labels": (
        mutant("minigrad.ops.cross_entropy", ("-t * factor(g)", "-t * g")).cross_entropy,
        X,
        np.array([0, 1, 2, 0]),
    ),
    "the weight's factors exchanged": (
        mutant(
            "minigrad.ops.linear",
            ("lambda g: product(as_rows(before(g)).T, x)", "lambda g: (x.T @ g).reshape(g.shape[1], -1)"),
        ).linear,
        X,
        X[:3] + X.T[:3, :3] ** 2,
    ),
}


@pytest.mark.parametrize("bug", GRADIENTS)
@pytest.mark.parametrize(
    "law", [testing.gradient_matches_difference, op_laws.every_element_matches_difference]
)
def test_the_difference_catches(law, bug):
    f, *inputs = GRADIENTS[bug]
    with pytest.raises(AssertionError, match="central difference"):
        law(f, *map(on_device, inputs))


CONTRACT = {
    "what is shared is handed out": (
        mutant("minigrad.ops.batch_norm", ("sums(g)[1].copy()", "sums(g)[1]")).batch_norm,
        [X, W, W],
        "gives away",
    ),
    "what is shared is stale": (stale_batch_norm, [X, W, W], "depends on the calls"),
    "a buffer is handed out": (half_with_a_buffer, [X], "gives away"),
    "an input is handed out": (scale_that_gives_its_input_away, [X], "gives away"),
    "calls are remembered": (scale_that_counts_its_calls, [X], "depends on the calls"),
    "g is written to": (square_in_place, [X], "g was written|depends"),
    "an input is written to": (relu_in_place, [X], "input was written|depends"),
}


@pytest.mark.parametrize("bug", CONTRACT)
def test_the_contract_of_pullbacks_catches_that(bug):
    f, inputs, words = CONTRACT[bug]
    with pytest.raises(AssertionError, match=words):
        op_laws.pullbacks_keep_the_contract(f, *[on_device(x.copy()) for x in inputs])


DTYPES = {
    "a value": lambda x: mutant(
        "minigrad.ops.elementwise", ("xp.where(x > 0, 1, slope).astype(x.dtype)", "xp.where(x > 0, 1, slope)")
    ).leaky_relu(x, slope=2.0),
    "a gradient": doubled_by_a_wide_constant,
    "a count": mutant(
        "minigrad.ops.reduce",
        (".reshape(g.shape).astype(x.dtype)", ".reshape(g.shape)"),
        ("spread, reduced = spreader(x, axes)", "spread, reduced = lambda g: g.reshape(reduced) + 0 * x"),
    ).max,
}


@pytest.mark.parametrize("bug", DTYPES)
def test_the_law_of_dtypes_catches_float64_in(bug):
    f = DTYPES[bug]
    with pytest.raises(AssertionError, match="float64"):
        op_laws.dtype_is_kept(lambda x: f(x, axis=0) if bug == "a count" else f(x), on_device(X))


def test_the_law_of_layouts_catches_an_array_in_c_order():
    dropout = mutant("minigrad.ops.dropout", ("xp.empty_like(x, dtype=", "xp.empty(x.shape, dtype=")).dropout
    with pytest.raises(AssertionError, match="strides"):
        op_laws.channels_last_is_kept(
            lambda x: dropout(x, p=0.5, rng=np.random.default_rng(0)), on_device(IMAGES)
        )


LIFTS = {
    "the second pullback is the first": (
        "entry.append((i, b.shape, to_y))",
        "entry.append((i, b.shape, to_x))",
    ),
    "the second input is forgotten": ("entry.append((i, b.shape, to_y))", "pass"),
    "numbers stay numbers": ("as_0d_array(value, a, b)", "value"),
}


@pytest.mark.parametrize("bug", LIFTS)
def test_the_law_of_lifts_catches_that(bug):
    broken = mutant("minigrad.op", LIFTS[bug]).lift_two
    shape = () if bug == "numbers stay numbers" else (2,)
    with pytest.raises(AssertionError, match="lifts differ"):
        op_laws.lifts_agree(
            (lift, broken),
            unwrap(ops.multiply),
            on_device(np.full(shape, 2.0)),
            on_device(np.full(shape, 3.0)),
        )


def test_the_law_of_astype_catches_a_number_that_keeps_its_dtype():
    broken = mutant("minigrad.op", ('(value.ndim or "dtype" in settings)', "value.ndim")).lift
    with pytest.raises(AssertionError, match="float32 .. as float64 is float32"):
        op_laws.astype_is_numpys(broken(unwrap(ops.astype)), np.full((), 1.5, np.float32), "float64")


def test_the_modules_under_test_were_not_changed():
    layer = nn.BatchNorm(3, dtype=np.float64)
    testing.gradient_matches_difference(ops.batch_norm, on_device(X), layer.weight.data, layer.bias.data)
