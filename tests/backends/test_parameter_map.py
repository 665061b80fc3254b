"""Laws of backends/parameter_map.py: split layers, stages of a pipeline, and models that all ranks have."""

import numpy as np
import pytest

from backends.data_parallel import NaiveDataParallel
from backends.model_parallel import ModelParallel
from backends.parameter_map import ParameterMap, parameter_map
from backends.pipeline import Pipeline
from minigrad import nn
from tests.backends import parameter_map_laws as laws


def build():
    rng = np.random.default_rng(0)
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(6, 7, rng=rng),
        nn.ReLU(),
        nn.Linear(7, 5, rng=rng),
        nn.ReLU(),
        nn.Linear(5, 3, rng=rng),
    )


STRATEGIES = {
    "column, row": lambda comm: ModelParallel(comm, plan={"1": "column", "3": "row"}),
    "nothing split": lambda comm: ModelParallel(comm, plan={}),
    "pipeline": lambda comm: Pipeline(comm, sample=(6,)),
    "data parallel": NaiveDataParallel,
}


def picture(parameters):
    return parameters._repr_svg_()


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_map_is_what_ranks_hold(strategy, ranks):
    results = laws.maps_are_what_ranks_hold(parameter_map, ranks, build, STRATEGIES[strategy])
    laws.a_map_is_drawn_whole(picture, results)


def test_a_map_of_many_ranks_leaves_some_out():
    parts = tuple({"<w>": ((rank, rank + 1), (0, 2))} for rank in range(100))
    laws.a_map_is_drawn_whole(picture, ParameterMap({"<w>": (100, 2)}, parts))
    assert repr(ParameterMap({"<w>": (100, 2)}, parts)) == "ParameterMap(1 parameters on 100 ranks)"
