"""Laws of lessons/minigrad_course/shared/checkpoint_interval.py, networks.py and timed_layer.py: the
published formulas and networks that lessons draw are those of their papers.
"""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from minigrad_course.machines.virtual_cluster import VirtualCluster
from minigrad_course.shared import checkpoint_interval, networks
from minigrad_course.shared.timed_layer import TimedLayer

from minigrad import Tape, Tensor, nn


@given(save=st.floats(0.1, 100), ratio=st.floats(50, 1e5))
def test_dalys_interval_loses_least_and_youngs_is_its_limit(save, ratio):
    failures = save * ratio
    best = checkpoint_interval.daly(save, failures)
    least = checkpoint_interval.waste(best, save, failures)
    for factor in (0.5, 0.8, 1.25, 2):
        assert checkpoint_interval.waste(best * factor, save, failures) > least
    assert 0 < least < 1
    assert checkpoint_interval.young(save, failures) == pytest.approx(best, rel=2 / math.sqrt(ratio))


def test_where_a_save_takes_longer_than_the_machines_live_daly_saves_once_a_failure():
    assert checkpoint_interval.daly(20.0, 10.0) == 10.0


@pytest.mark.parametrize(
    ("network", "weights", "work"),
    [
        (networks.VGG16, 138_357_544, 15.5e9),
        (networks.RESNET50, 25_557_032, 4.1e9),
        (networks.RESNET101, 44_549_160, 7.8e9),
    ],
)
def test_networks_have_the_weights_and_the_work_of_their_papers(network, weights, work):
    assert sum(layer.weights for layer in network) == weights
    assert sum(layer.work for layer in network) == pytest.approx(work, rel=0.06)


def test_a_timed_layer_takes_its_seconds_forward_and_twice_backward():
    def work(comm):
        layer = nn.Linear(2, 2, rng=np.random.default_rng(0))
        x = np.ones((1, 2))
        with Tape() as tape:
            y = TimedLayer(layer, comm, 3.0)(Tensor(x))
        forward = comm.time()
        tape.backward(y, np.ones((1, 2)))
        np.testing.assert_array_equal(y.data, layer(Tensor(x)).data)
        return forward, comm.time()

    assert VirtualCluster(1).run(work) == [(3.0, 9.0)]
