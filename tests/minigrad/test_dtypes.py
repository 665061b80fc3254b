"""float32 stays float32, also beside Python numbers and NumPy scalars, also in 0-d."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from minigrad import ops, testing
from tests.minigrad import op_laws
from tests.minigrad.op_table import TABLE, Case

every_op = pytest.mark.parametrize("case", TABLE, ids=lambda case: case.name)


@every_op
@given(data=st.data())
def test_float32_in_float32_out_and_back(case: Case, data):
    f, inputs = case.draw(data)
    op_laws.dtype_is_kept(f, *inputs)


NUMBERS = [2, 2.0, np.float64(2), np.float32(2), np.int64(2), np.array(2.0, np.float32)]
EXPRESSIONS = {
    "x + n": lambda x, n: x + n,
    "n - x": lambda x, n: n - x,
    "x * n": lambda x, n: x * n,
    "n / x": lambda x, n: n / x,
    "x ** n": lambda x, n: x**n,
    "n ** x": lambda x, n: n**x,
    "mean of x / n": lambda x, n: (x / n).mean(),
    "n * sum": lambda x, n: n * x.sum() / n,
}


@pytest.mark.parametrize("shape", [(), (1,), (2, 3)], ids=str)
@pytest.mark.parametrize("number", NUMBERS, ids=lambda n: type(n).__name__)
@pytest.mark.parametrize("name", EXPRESSIONS)
def test_a_number_does_not_widen_float32(name, number, shape):
    x = testing.on_device(np.full(shape, 1.5))
    if isinstance(number, np.ndarray):
        number = testing.on_device(number)
    op_laws.dtype_is_kept(lambda x: EXPRESSIONS[name](x, number), x)


@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 3)], ids=str)
@given(st.sampled_from("efdilB?"), st.sampled_from("efdilB?"))
def test_astype_gives_the_dtype_that_is_asked_for(shape, dtype, other):
    op_laws.astype_is_numpys(ops.astype, np.full(shape, 2.75).astype(dtype), other)
