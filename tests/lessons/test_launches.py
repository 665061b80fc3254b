"""The counts that lesson 04 shows are those of the double of CuPy."""

import json

import pytest

from minigrad.models import NETS
from tests import launches
from tests.double import needs_double

LARGE = "vgg"  # takes more time than all others together


def are_stored(counts):
    stored = json.loads(launches.COUNTS.read_text(encoding="utf-8"))
    assert {**stored, **counts} == stored, "run python -m tests.launches --write"


@pytest.mark.double
@needs_double
@pytest.mark.parametrize(
    "nets",
    [
        pytest.param([net for net in NETS if net != LARGE], id="small"),
        pytest.param([LARGE], marks=pytest.mark.thorough, id=LARGE),
    ],
)
def test_the_lesson_shows_what_a_step_asks_of_a_gpu(nets):
    counts = launches.launches(*nets)
    assert list(counts) == nets
    are_stored(counts)
    assert all(of["synchronizations"] == 1 and of["copies to the GPU"] == 0 for of in counts.values())
    counts[nets[0]]["kernels"] += 1
    with pytest.raises(AssertionError, match="tests.launches"):
        are_stored(counts)


def test_the_lesson_shows_every_network():
    assert set(json.loads(launches.COUNTS.read_text(encoding="utf-8"))) == set(NETS)
