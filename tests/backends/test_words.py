"""Laws of backends/words.py: numbers in words."""

import pytest

from backends.words import counted


@pytest.mark.parametrize(("n", "text"), [(0, "0 ranks"), (1, "1 rank"), (2, "2 ranks")])
def test_only_one_is_singular(n, text):
    assert counted(n, "rank") == text
