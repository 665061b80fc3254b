"""Laws of minigrad/optim_loops.py: a step by loops has the bits of one by the readable ``update``."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from minigrad import loops, optim, optim_loops
from minigrad.testing import c_order, fortran_order, with_gaps
from tests.minigrad.optim_laws import has_the_bits_of_update

MAKERS = {
    "momentum": lambda p: optim.SGD(p, 0.1, momentum=0.9),
    "nesterov, decay": lambda p: optim.SGD(p, 0.1, momentum=0.9, nesterov=True, weight_decay=0.03),
    "plain": lambda p: optim.SGD(p, 0.1),
    "uphill": lambda p: optim.SGD(p, 0.1, momentum=0.9, maximize=True),
    "adam": lambda p: optim.Adam(p, 0.01),
    "a rate of NumPy": lambda p: optim.Adam(p, np.float64(0.01)),
    "amsgrad": lambda p: optim.Adam(p, 0.01, amsgrad=True),
    "adam, decay": lambda p: optim.Adam(p, 0.01, weight_decay=0.03),
    "adamw": lambda p: optim.AdamW(p, 0.01, weight_decay=0.03),
}


@given(
    st.sampled_from(list(MAKERS)),
    st.lists(st.integers(0, 9), min_size=1, max_size=3),
    st.sampled_from([np.float32, np.float64]),
    st.sampled_from([c_order, fortran_order, with_gaps]),
)
@example("adamw", [1001], np.float32, c_order)
@example("a rate of NumPy", [1001], np.float32, c_order)
@example("nesterov, decay", [1001], np.float32, c_order)
def test_a_step_by_loops_has_the_bits_of_update(name, shape, dtype, order):
    has_the_bits_of_update(MAKERS[name], shape, dtype, order)


@pytest.mark.skipif(not loops.available(), reason="needs Numba")
def test_small_parameters_are_updated_without_loops():
    sizes = optim_loops.SMALL - 1, optim_loops.SMALL, optim_loops.LARGE
    loops.can_take(np.ones(1))
    taken = []
    for size in sizes:
        update = optim_loops.Update(np.zeros(size), np.zeros(size), {}, (0.1,), None)
        taken.append(optim_loops.can_take(update, ["v"]))
    assert taken == [False, loops.are_imported(), True]
