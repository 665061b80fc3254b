"""Parameters of tests of which the quick lane takes a part."""

from collections.abc import Iterable
from functools import partial
from typing import Any

import pytest
from hypothesis import settings

IS_THOROUGH = settings().max_examples >= 60
RANKS = range(1, 18) if IS_THOROUGH else (*range(1, 10), 13, 16)
"""Numbers of ranks that collectives run on: powers of two, their neighbours, and others."""

thorough = partial(pytest.param, marks=pytest.mark.thorough)


def by_turns(ones: Iterable[Any], others: Iterable[Any]) -> list[Any]:
    """All pairs, for ``parametrize``; the quick lane has each one with one of the others, by turns."""
    others = list(others)
    return [
        (one, other) if j == i % len(others) else thorough(one, other)
        for i, one in enumerate(ones)
        for j, other in enumerate(others)
    ]
