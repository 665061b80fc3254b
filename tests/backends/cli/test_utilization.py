"""Laws of backends/cli/utilization.py and backends/planner/sizes_of_net.py: the last line of a training says
which share of this machine's products it reached.
"""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.cli.utilization import Utilization, utilization_of
from backends.planner.sizes_of_net import operations_of_sample
from minigrad.models import NETS
from tests.backends.cli import utilization_laws as law


def test_operations_are_those_of_products():
    law.operations_are_those_of_products()


@given(st.lists(st.floats(1e-4, 0.3), max_size=4))
def test_the_peak_is_of_the_fastest_product(times):
    law.the_peak_is_of_the_fastest_product(times)


@given(st.floats(0.1, 1e6), st.integers(1, 64), st.floats(1e8, 1e13))
def test_all_ranks_count(samples_per_second, ranks, peak):
    law.all_ranks_count(samples_per_second, ranks, peak)


def test_nothing_is_said_of_no_steps():
    assert utilization_of(NETS["mlp"], 0.0, 1, "float32") is None


@pytest.mark.parametrize(
    ("speed", "text"),
    [
        (
            Utilization(11.2e9, 33e9, 1),
            "11.2 GFLOP/s, 34% of the 33.0 GFLOP/s that one matrix product reaches here",
        ),
        (
            Utilization(5.5e9, 110e9, 2),
            "5.50 GFLOP/s, 2% of the 2 x 110 GFLOP/s that one matrix product reaches here",
        ),
    ],
)
def test_it_is_one_sentence(speed, text):
    assert str(speed) == text


def test_a_training_ends_with_it(minigrad, tmp_path):
    file = tmp_path / "run.json"
    status, out, _ = minigrad(
        "train", "--net", "sigmoid", "--epochs", "1", "--batch", "all", "--json", str(file)
    )
    assert status == 0 and "GFLOP/s" in out
    metrics = json.loads(file.read_text(encoding="utf-8"))
    speed = metrics["utilization"]
    flops = operations_of_sample(NETS["sigmoid"]) * metrics["samples_per_second"]
    assert speed["flops"] == pytest.approx(flops) and speed["ranks"] == 1
    assert speed["share"] == pytest.approx(speed["flops"] / speed["peak"])
