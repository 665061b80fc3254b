"""Laws of minigrad/optim.py: SGD updates large arrays a part at a time; that changes nothing."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minigrad import Parameter, optim
from minigrad.device import to_host
from minigrad.optim import cache_sized
from minigrad.testing import on_device
from tests.double import ON_CUDA


@given(st.integers(0, 70), st.integers(1, 9))
def test_the_parts_are_views_that_cover_the_arrays_once(columns, size):
    a, b = np.zeros((3, columns)), np.arange(3.0 * columns).reshape(3, columns)
    for part, other in cache_sized(a, b, size=size):
        part += other + 1
    assert np.array_equal(a, b + 1)


@pytest.mark.parametrize("settings", [{}, {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True}], ids=str)
@pytest.mark.parametrize("strided", [False, True])
def test_sgd_of_a_large_array_is_the_textbook_bitwise(settings, strided):
    rng = np.random.default_rng(0)
    start, g = rng.standard_normal((2, 300, 500), np.float32)
    parameter = Parameter(on_device(start))
    if strided:
        parameter.data = parameter.data.T
    optimizer = optim.SGD([parameter], 0.1, weight_decay=0.01, **settings)
    w, v = to_host(parameter.data).copy(), np.zeros(parameter.shape, np.float32)
    for step in range(3):
        grad = (g.T if strided else g) * (step + 1)
        parameter.grad = on_device(grad)
        optimizer.step()
        d = grad + 0.01 * w
        v = settings.get("momentum", 0) * v + d
        w = w - 0.1 * (d + 0.9 * v if "nesterov" in settings else v)
        # CUDA's compiler rounds a * b + c once.
        tolerance = 4 * np.finfo(np.float32).eps * abs(w).max() if ON_CUDA else 0
        np.testing.assert_allclose(to_host(parameter.data), w, 0, tolerance)
