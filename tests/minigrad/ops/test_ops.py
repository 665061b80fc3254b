"""Laws of minigrad/ops/: laws of minigrad/ops/: every op's gradient is the central difference."""

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from minigrad import ops, testing
from tests.minigrad.ops import op_laws
from tests.minigrad.ops.op_table import CONSTANTS, TABLE, Case

FEWER = max(settings().max_examples // 5, 4)
every_op = pytest.mark.parametrize("case", TABLE, ids=lambda case: case.name)


@every_op
@given(data=st.data())
def test_the_slope_along_a_random_direction_is_the_central_difference(case: Case, data):
    f, inputs = case.draw(data)
    testing.gradient_matches_difference(f, *inputs)


@every_op
@settings(max_examples=FEWER)
@given(data=st.data())
def test_every_element_of_the_gradient_is_the_central_difference(case: Case, data):
    f, inputs = case.draw(data)
    op_laws.every_element_matches_difference(f, *inputs)


def test_every_op_stands_in_the_table():
    assert set(ops.__all__) <= {case.name for case in TABLE} | CONSTANTS
