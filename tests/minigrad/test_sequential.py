"""A ReLU changes places with a max pooling behind it, and nobody can tell, except by the time it takes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minigrad import Parameter, Tape, nn


def written_order(model, x):
    for layer in model.layers:
        x = layer(x)
    return x


def both_ways(model, x, seed):
    """Value, image and weight gradients: as Sequential applies the layers, and as they are written."""
    for forward in (model, lambda image: written_order(model, image)):
        image = Parameter(x)
        for parameter in model.parameters():
            parameter.grad = None
        with Tape() as tape:
            y = forward(image)
        tape.backward(y, np.random.default_rng(seed).integers(-9, 9, y.shape).astype(y.dtype))
        yield [y.data, image.grad, *(p.grad for p in model.parameters())]


def agree(model, x, seed=0):
    for a, b in zip(*both_ways(model, x, seed), strict=True):
        np.testing.assert_array_equal(a, b)


@given(seed=st.integers(0, 99), kernel=st.integers(1, 3), stride=st.integers(1, 3), padding=st.integers(0, 1))
def test_values_and_gradients_are_the_same_bit_for_bit_ties_included(seed, kernel, stride, padding):
    rng = np.random.default_rng(seed)
    x = rng.integers(-2, 3, (2, 3, 6, 5)).astype(float)  # few values: many ties, many zeros
    pool = nn.MaxPool2d(kernel, stride=stride, padding=min(padding, kernel // 2))
    agree(nn.Sequential(nn.Conv2d(3, 2, 3, padding=1, rng=rng), nn.ReLU(), pool, nn.Flatten()), x)
    agree(nn.Sequential(nn.ReLU(), pool), x, seed)


def test_only_a_relu_directly_before_a_max_pooling_waits():
    def order(*layers):
        return nn.Sequential(*layers).order()

    relu, pool = nn.ReLU(), nn.MaxPool2d(2)
    assert order(nn.Flatten(), relu, pool, relu) == [0, 2, 1, 3]
    assert order(relu, pool, relu, pool) == [1, 0, 3, 2]
    assert order(relu, relu, pool) == [0, 2, 1]
    for other in (nn.Tanh(), nn.GELU(), nn.LeakyReLU(-1.0), nn.Sequential(relu)):
        assert order(other, pool) == [0, 1]
    assert order(relu, nn.AvgPool2d(2)) == [0, 1] and order(pool, relu) == [0, 1]


@pytest.mark.parametrize("wrong", [nn.GELU, lambda: nn.LeakyReLU(-1.0)])
def test_the_law_catches_an_activation_that_may_not_wait(wrong):
    layer = wrong()
    layer.passes_maximum = True
    x = -np.arange(16.0).reshape(1, 1, 4, 4) / 4
    with pytest.raises(AssertionError):
        agree(nn.Sequential(layer, nn.MaxPool2d(2)), x)


def test_the_law_catches_an_average_that_pretends_to_be_a_maximum():
    pool = nn.AvgPool2d(2)
    pool.takes_maximum = True
    with pytest.raises(AssertionError):
        agree(nn.Sequential(nn.ReLU(), pool), np.random.default_rng(0).normal(size=(1, 1, 4, 4)))


def test_an_error_names_the_layer_where_it_stands_in_the_list():
    model = nn.Sequential(nn.Flatten(), nn.ReLU(), nn.MaxPool2d(2))
    with pytest.raises(ValueError, match=r"layer 2, in MaxPool2d\(2\): pooling takes images"):
        model(np.zeros((2, 1, 4, 4)))
