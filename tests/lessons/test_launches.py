"""The counts that lesson 04 shows are those of the double of CuPy."""

import json

import pytest

from tests import launches
from tests.double import needs_double


def are_stored(counts):
    assert counts == json.loads(launches.COUNTS.read_text()), "run python -m tests.launches --write"


@needs_double
def test_the_lesson_shows_what_a_step_asks_of_a_gpu():
    counts = launches.launches()
    are_stored(counts)
    assert all(of["synchronizations"] == 1 and of["copies to the GPU"] == 0 for of in counts.values())
    counts["mlp"]["kernels"] += 1
    with pytest.raises(AssertionError, match="tests.launches"):
        are_stored(counts)
