"""Laws of minigrad/pullback.py and minigrad/ops/: results of pullbacks are private, nothing
is written, nothing remembered.
"""

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from tests.minigrad.ops import op_laws
from tests.minigrad.ops.op_table import TABLE, Case

every_op = pytest.mark.parametrize("case", TABLE, ids=lambda case: case.name)


@every_op
@settings(max_examples=settings().max_examples // 2)  # of each of a hundred ops
@given(data=st.data())
def test_a_pullback_keeps_nothing_writes_nothing_and_may_be_called_again(case: Case, data):
    f, inputs = case.draw(data)
    op_laws.pullbacks_keep_the_contract(f, *inputs)
