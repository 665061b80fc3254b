"""Layers that behave differently under a tape: batch normalisation and dropout."""

import numpy as np
import pytest

from minigrad import Tape, nn
from minigrad.testing import DEVICE, on_device, to_host

SHAPES = [(6, 3), (2, 3, 4, 5)]


def layer():
    made = nn.BatchNorm(3, momentum=0.3, dtype=np.float64).to(device=DEVICE)
    assert isinstance(made, nn.BatchNorm)
    return made


def drawn(shape):
    x = np.random.default_rng(0).normal(3, 2, shape)
    return x, x.swapaxes(0, 1).reshape(3, -1)  # and by channel


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_under_a_tape_it_uses_the_batchs_statistics(shape):
    x, _ = drawn(shape)
    with Tape():
        y = layer()(on_device(x)).numpy()
    by_channel = y.swapaxes(0, 1).reshape(3, -1)
    np.testing.assert_allclose(by_channel.mean(1), 0, atol=1e-12)
    np.testing.assert_allclose(by_channel.var(1), 1, rtol=1e-4)  # eps is 1e-5 beside a variance of 4


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_running_statistics_move_towards_the_batchs_unbiased_ones(shape):
    x, by_channel = drawn(shape)
    norm = layer()
    for _ in range(2):
        with Tape():
            norm(on_device(x))
    share = 1 - 0.7**2
    np.testing.assert_allclose(to_host(norm.running_mean), share * by_channel.mean(1), rtol=1e-12)
    expected = 0.7**2 + share * by_channel.var(1, ddof=1)
    np.testing.assert_allclose(to_host(norm.running_var), expected, rtol=1e-12)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_without_a_tape_it_uses_the_running_ones_and_leaves_them(shape):
    x, _ = drawn(shape)
    norm = layer()
    norm.running_mean += 1.0
    norm.running_var += 3.0
    before = norm.state_dict()
    expected = (x - 1) / np.sqrt(4 + 1e-5)
    np.testing.assert_allclose(norm(on_device(x)).numpy(), expected, rtol=1e-12)
    assert all(np.array_equal(before[name], value) for name, value in norm.state_dict().items())


def test_one_sample_does_not_spoil_the_running_variance():
    norm = layer()
    with Tape():
        norm(on_device(np.ones((1, 3))))
    assert np.isfinite(to_host(norm.running_var)).all()


def test_no_samples_leave_the_running_statistics_alone():
    norm = layer()
    before = norm.state_dict()
    with Tape():
        norm(on_device(np.ones((0, 3))))
    assert all(np.array_equal(before[name], value) for name, value in norm.state_dict().items())


def test_dropout_is_the_identity_without_a_tape():
    x = on_device(np.ones(50))
    layer = nn.Dropout(0.5, rng=np.random.default_rng(0))
    assert layer(x).data is x
    with Tape():
        assert set(np.unique(layer(x).numpy())) == {0.0, 2.0}


def test_dropout_draws_anew_each_time_and_the_same_for_the_same_seed():
    x, draws = on_device(np.ones(50)), []
    for _ in range(2):
        layer = nn.Dropout(0.5, rng=np.random.default_rng(0))
        with Tape():
            draws.append([layer(x).numpy().tolist() for _ in range(2)])
    assert draws[0] == draws[1]
    assert draws[0][0] != draws[0][1]
