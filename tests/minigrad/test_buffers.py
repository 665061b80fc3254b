"""Laws of minigrad/op.py and tape.py: a gradient computed in a buffer that a strategy lent is the
gradient, and is nobody else's.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minigrad import Parameter, Tape, Tensor, ops
from minigrad.op import op
from tests.bugs.mutant import mutant


@op
def recomputed(x, weight, *, parameter, tape):
    """linear(x, parameter), computed anew on the way back, under a tape of its own."""

    def to_x(g):
        inside = Tensor(x, requires_grad=True)
        with tape() as again:
            out = ops.linear(inside, parameter)
        again.backward(out, g)
        return inside.grad

    return x @ weight.T, (to_x, None)


def gradients(tape, lend, seed, passes, dtype=np.float64):
    """After some backwards through weights used once, twice and in a nested tape, without zeroing."""
    rng = np.random.default_rng(seed)
    shapes = {"once": (3, 5), "bias": (5,), "twice": (5, 5), "nested": (5, 5)}
    parameters = {name: Parameter(rng.normal(size=shape).astype(dtype)) for name, shape in shapes.items()}
    buffers = {name: np.full(shape, np.nan, dtype) for name, shape in shapes.items()}
    for _ in range(passes):
        if lend:
            for name, parameter in parameters.items():
                parameter.grad_buffer = buffers[name]
        x = rng.normal(size=(4, 5)).astype(dtype)
        with tape() as record:
            h = (
                ops.tanh(ops.linear(Tensor(x), parameters["twice"], parameters["bias"]))
                * parameters["nested"].mean()
            )
            h = ops.linear(h, parameters["twice"]) + (parameters["twice"] * h.mean()).sum()
            h = recomputed(h, parameters["nested"], parameter=parameters["nested"], tape=tape)
            y = ops.linear(ops.linear(h, parameters["nested"]), parameters["once"])
            loss = (y * y).mean()
        record.backward(loss)
    return {name: parameter.grad for name, parameter in parameters.items()}, buffers


def law(tape, seed, passes):
    expected, _ = gradients(tape, False, seed, passes)
    actual, buffers = gradients(tape, True, seed, passes)
    for name, g in expected.items():
        np.testing.assert_array_equal(actual[name], g, name)
    assert actual["once"] is buffers["once"]


@given(seed=st.integers(0, 1000), passes=st.integers(1, 3))
def test_a_lent_buffer_changes_no_bit(seed, passes):
    law(Tape, seed, passes)


@pytest.mark.parametrize(
    "change",
    [
        (" or entry.grad is not None", ""),
        ("if buffers and grads[index] is None:", "if buffers:"),
        ("    entry.grad_buffer = None\n", ""),
        ("return buffer\n", "return buffer.copy()\n"),
    ],
    ids=["over an earlier gradient", "over an earlier use", "to several", "copied"],
)
def test_the_law_catches_a_gradient_written(change):
    law(mutant("minigrad.tape").Tape, 0, 2)
    with pytest.raises((AssertionError, TypeError)):
        law(mutant("minigrad.tape", change).Tape, 0, 2)


def test_a_buffer_of_another_dtype_is_left_alone():
    parameter = Parameter(np.ones((2, 3), np.float32))
    parameter.grad_buffer = np.zeros((2, 3))
    with Tape() as tape:
        loss = ops.linear(Tensor(np.ones((4, 3), np.float32)), parameter).sum()
    tape.backward(loss)
    assert parameter.grad is not None and parameter.grad.dtype == np.float32
    assert not parameter.grad_buffer.any() and (parameter.grad == 4).all()
