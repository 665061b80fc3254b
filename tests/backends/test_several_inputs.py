"""Laws of minigrad/module.py, backends/model_parallel/layers/pass_through.py and
backends/data_parallel/zero/gathered_weights.py: layers of several inputs and keywords.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.backends.several_inputs_laws import (
    STRATEGIES,
    a_layer_gets_all_inputs,
    activations_stay_split_through_the_identity,
    trains,
)


def test_a_layer_gets_all_inputs():
    a_layer_gets_all_inputs()


def test_activations_stay_split_through_the_identity():
    activations_stay_split_through_the_identity()


@pytest.mark.parametrize("name", STRATEGIES)
@settings(max_examples=settings().max_examples // 4)
@given(sizes=st.lists(st.integers(1, 7), min_size=1, max_size=3))
def test_layers_of_several_inputs_train_like_serial(name, sizes):
    trains(name, tuple(sizes))


@pytest.mark.parametrize("name", ["data", "zero 1", "zero 3"])
@settings(max_examples=settings().max_examples // 4)
@given(segments=st.integers(1, 5))
def test_recomputed_layers_of_several_inputs_train_like_serial(name, segments):
    trains(name, segments=segments)
