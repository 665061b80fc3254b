"""Laws of lessons/minigrad_course/grading/array_checks.py: what is wrong with an array is
said in one line.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from minigrad_course.grading import Wrong
from minigrad_course.grading.array_checks import (
    check_equal,
    check_like,
    check_private,
    check_unchanged,
    enumeration,
)

X = np.arange(6.0).reshape(2, 3)


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (None, "w is None, not an array"),
        ([1.0], "w is a list, not an array"),
        (X.T, r"w has shape \(3, 2\), it should be \(2, 3\)"),
        (X.astype(np.float32), "w is float32, it should be float64"),
    ],
)
def test_another_type_shape_or_dtype_is_named(x, words):
    check_like("w", X, (2, 3), float)
    with pytest.raises(Wrong, match=words):
        check_like("w", x, (2, 3), float)


@given(place=st.integers(1, 5), change=st.sampled_from([1e-3, -2.0, np.nan]))
def test_a_number_that_differs_is_named_by_its_place(place, change):
    wrong = X.copy()
    wrong.flat[place] += change
    check_equal("w", X.copy(), X)
    with pytest.raises(Wrong, match=f"w is .* at {place // 3}, {place % 3}, it should be {X.flat[place]:g}"):
        check_equal("w", wrong, X)


@pytest.mark.parametrize(("factor", "words"), [(0.0, "0 everywhere"), (2.5, "w is 2.5 times")])
def test_a_multiple_is_named_by_its_factor(factor, words):
    with pytest.raises(Wrong, match=words):
        check_equal("w", factor * X, X)


def test_memory_of_an_input_and_a_changed_input_are_named():
    check_private("w", X.copy(), {"x": X})
    with pytest.raises(Wrong, match="w is memory of x: return a new array"):
        check_private("w", X[1:], {"x": X})
    check_unchanged({"x": X}, [X.copy()])
    with pytest.raises(Wrong, match="x was changed: work on a copy"):
        check_unchanged({"x": X}, [-X])


def test_words():
    assert [enumeration(range(n)) for n in (1, 2, 3)] == ["0", "0 and 1", "0, 1 and 2"]
