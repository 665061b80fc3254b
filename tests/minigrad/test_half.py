"""Laws of minigrad/half.py and minigrad/product.py: 16 bits to store, 32 to compute with, for all ops."""

from functools import partial

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from minigrad import ops
from tests.minigrad.ops import half_laws
from tests.minigrad.ops.op_table import CONSTANTS, TABLE, Case

FEWER = max(settings().max_examples // 5, 4)
LOSSES = {
    "cross_entropy", "cross_entropy_options", "nll_loss", "soft_cross_entropy", "kl_div",
    "kl_div_of_logarithms", "mse", "l1_loss", "huber_loss", "smooth_l1_loss",
    "binary_cross_entropy_with_logits",
}  # fmt: skip
SOME_STEPS = {
    "multiply": "products of repeated inputs are rounded before they are summed",
    "divide": "as is x / y / y, which is rounded on its way",
    "matmul": "as are the products of stacks that share a matrix",
    "sin": "the slope is rounded, and then its product with g",
    "cos": "the slope is rounded, and then its product with g",
    "einsum": "several ops, each of which rounds",
    "pad_with_its_own": "the sums along each axis are rounded",
}
BY_VALUE = {
    "exp": lambda y, g: g * y,
    "sqrt": lambda y, g: g / (2 * y),
    "tanh": lambda y, g: g * (1 - y * y),
    "sigmoid": lambda y, g: g * y * (1 - y),
    "softmax": lambda y, g, axis: y * (g - (g * y).sum(axis=axis, keepdims=True)),
    "log_softmax": lambda y, g, axis: g - np.exp(y) * g.sum(axis=axis, keepdims=True),
}
AS_IT_IS = {  # where the table's function rounds inputs itself, or takes a setting from their dtype
    "soft_cross_entropy": ops.cross_entropy,
    "rms_norm": partial(ops.rms_norm, eps=1e-3),
}
ONCE = [case for case in TABLE if case.name not in {*SOME_STEPS, *BY_VALUE}]


@pytest.mark.parametrize("case", ONCE, ids=lambda case: case.name)
@settings(max_examples=FEWER)
@given(data=st.data())
def test_an_op_of_halves_is_that_of_singles_rounded_once(case: Case, data):
    f, inputs = case._replace(op=AS_IT_IS.get(case.name, case.op)).draw(data)
    value = np.float32 if case.name in LOSSES else np.float16
    with np.errstate(all="ignore"):
        half_laws.is_the_rounded_op(f, *inputs, value=value)


@pytest.mark.parametrize("case", [c for c in TABLE if c.name in SOME_STEPS], ids=lambda case: case.name)
@settings(max_examples=FEWER)
@given(data=st.data())
def test_an_op_of_a_few_steps_rounds_each(case: Case, data):
    f, inputs = case.draw(data)
    half_laws.rounds_some_steps(f, *inputs)


@pytest.mark.parametrize("case", [c for c in TABLE if c.name in BY_VALUE], ids=lambda case: case.name)
@settings(max_examples=FEWER)
@given(data=st.data())
def test_a_gradient_is_computed_from_the_rounded_value(case: Case, data):
    (x,), own = data.draw(case.inputs)
    half_laws.goes_back_from_the_value(case.op, BY_VALUE[case.name], x, **own)


def test_every_op_has_a_law():
    assert {*SOME_STEPS, *BY_VALUE, *AS_IT_IS} <= {case.name for case in TABLE}
    assert set(ops.__all__) <= {case.name for case in TABLE} | CONSTANTS
