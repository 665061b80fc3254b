"""Laws of backends/laws.py and backends/data_parallel/step_summary.py: masks and huge numbers among a net's
arrays.
"""

from functools import partial

import numpy as np
import pytest

from backends.data_parallel import (
    BackupWorkers,
    Bucketed,
    DataParallel,
    Elastic,
    ProportionalDataParallel,
    Sharded,
    SharedMemoryDataParallel,
)
from backends.laws import distances
from tests.backends import constant_laws
from tests.backends.constant_laws import CONSTANTS

STRATEGIES = {
    "data": DataParallel,
    "bucketed": partial(Bucketed, bucket_bytes=100),
    "zero 1": partial(Sharded, stage=1),
    "zero 3": partial(Sharded, stage=3),
    "proportional": ProportionalDataParallel,
    "shared memory": SharedMemoryDataParallel,
    "elastic": Elastic,
    "backup workers": BackupWorkers,
}


def test_what_is_wrong_shows_beside_a_mask_and_a_huge_number():
    constant_laws.what_is_wrong_shows_beside_a_constant()
    constant_laws.a_halved_weight_shows_beside_a_huge_number()


@pytest.mark.parametrize("name", CONSTANTS)
def test_a_right_training_with_a_mask_is_proved(name):
    constant_laws.a_right_training_with_a_mask_is_proved(name)


@pytest.mark.parametrize("name", CONSTANTS)
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.filterwarnings("error:invalid", "ignore:overflow")  # the sum of thirds of float32's least number
def test_a_constant_stays_as_it_is(strategy, name):
    constant_laws.a_constant_stays_as_it_is(STRATEGIES[strategy], name)


def test_numbers_that_are_not_finite():
    infinite, nan, one = (np.array([1.0, x]) for x in (-np.inf, np.nan, 1.0))
    start = {"x": np.zeros(2)}
    assert distances({"x": infinite}, {"x": infinite.copy()}, start)["x"] == (0, 0)
    for expected, actual in [(infinite, one), (one, infinite), (infinite, -infinite), (nan, nan), (one, nan)]:
        assert distances({"x": expected}, {"x": actual}, start)["x"] == (np.inf, np.inf)
    assert distances({"x": infinite}, {"x": infinite})["x"] == (np.inf, np.inf)  # a gradient


def test_integers_have_differences():
    low, high = np.array([0, 255], np.uint8), np.array([255, 255], np.uint8)
    assert distances({"x": low}, {"x": high})["x"] == distances({"x": high}, {"x": low})["x"] == (255, 1)
