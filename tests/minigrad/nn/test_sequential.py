"""Laws of minigrad/module.py, minigrad/nn/conv.py, pool.py and activation.py: a Sequential applies its
layers as they are written, whatever they are; a net may pool before its ReLU.
"""

from contextlib import nullcontext
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minigrad import Parameter, Tape, Tensor, nn, ops, recomputed
from minigrad.nn import conv as conv_layers
from minigrad.ops.fast import conv_pool
from minigrad.testing import DEVICE, on_device


class Shifted(nn.ReLU):
    """A ReLU by its base class, another function by its own forward."""

    def forward(self, x):
        return super().forward(x) * -2.0 + 1.0


class Averaging(nn.MaxPool2d):
    """A max pooling by its base class, an average by its own forward."""

    def forward(self, x):
        return ops.avg_pool2d(x, kernel=self.settings["kernel"], stride=self.settings["stride"])


LAYERS = {
    "relu": nn.ReLU,
    "shifted": Shifted,
    "leaky": lambda: nn.LeakyReLU(-1.0),
    "half": lambda: nn.LeakyReLU(0.5),
    "max": lambda: nn.MaxPool2d(2, stride=1),
    "averaging": lambda: Averaging(2, stride=1),
    "tiles": lambda: nn.MaxPool2d(2),
    "averaging tiles": lambda: Averaging(2),
}


def value_and_gradients(forward, parameters, x, seed):
    """Value, image and weight gradients."""
    image = Parameter(on_device(x))
    for parameter in parameters:
        parameter.grad = None
    with Tape() as tape:
        y = forward(image)
    tape.backward(y, on_device(np.random.default_rng(seed).integers(-9, 9, y.shape).astype(y.dtype)))
    return [y.numpy(), *(Tensor(p.grad).numpy() for p in (image, *parameters) if p.grad is not None)]


def few_values(rng, shape):
    """Many ties, many zeros."""
    return rng.integers(-2, 3, shape).astype(float)


IN_ONE_PASS = [[], ["tiles"], ["tiles", "relu"], ["relu", "tiles"]]


@given(
    names=st.lists(st.sampled_from(list(LAYERS)), min_size=1, max_size=3),
    first=st.sampled_from(IN_ONE_PASS),
    seed=st.integers(0, 99),
    segments=st.integers(1, 4),
)
def test_layers_are_applied_one_after_the_other_as_they_are_written(names, first, seed, segments):
    names = first + names[: 4 - len(first)]
    rng = np.random.default_rng(seed)
    conv = nn.Conv2d(2, 2, 3, padding=1, rng=rng)
    model = nn.Sequential(conv, *(LAYERS[name]() for name in names))
    for parameter in conv.parameters():  # whole numbers, whose sums are exact in any order
        parameter.data = few_values(rng, parameter.shape)
    model.to(device=DEVICE)

    def written(x):
        for layer in model.layers:
            x = layer(x)
        return x

    x = few_values(rng, (2, 2, 16, 16))
    expected = value_and_gradients(written, model.parameters(), x, seed)
    for forward in (model, recomputed(model, min(segments, len(model)))):
        with patch.object(conv_layers, "pays", lambda *_: True):
            results = value_and_gradients(forward, model.parameters(), x, seed)
        for a, b in zip(results, expected, strict=True):
            np.testing.assert_array_equal(a, b)


@given(seed=st.integers(0, 99), kernel=st.integers(1, 3), stride=st.integers(1, 3), padding=st.integers(0, 1))
def test_a_relu_behind_a_max_pooling_gives_the_bits_of_one_before_it(seed, kernel, stride, padding):
    rng = np.random.default_rng(seed)
    conv, relu = nn.Conv2d(3, 2, 3, padding=1, rng=rng).to(device=DEVICE), nn.ReLU()
    pool = nn.MaxPool2d(kernel, stride=stride, padding=min(padding, kernel // 2))
    x = few_values(rng, (2, 3, 6, 5))
    before, behind = (
        value_and_gradients(nn.Sequential(conv, *layers), conv.parameters(), x, seed)
        for layers in ((relu, pool), (pool, relu))
    )
    for a, b in zip(before, behind, strict=True):
        np.testing.assert_array_equal(a, b)


def test_an_error_names_the_layer_where_it_stands_in_the_list():
    model = nn.Sequential(nn.Flatten(), nn.ReLU(), nn.MaxPool2d(2))
    with pytest.raises(ValueError, match=r"layer 2, in MaxPool2d\(2\): pooling takes images"):
        model(np.zeros((2, 1, 4, 4)))
    model = nn.Sequential(nn.Conv2d(1, 2, 3, rng=0), nn.ReLU(), nn.MaxPool2d(2)).to(device=DEVICE)
    for shape, message in (
        ((2, 2, 4, 4), r"layer 0, in Conv2d\(1, 2, 3\): conv2d of x"),
        ((2, 1, 3, 3), r"layer 2, in MaxPool2d\(2\): a window"),
    ):
        with pytest.raises(ValueError, match=message):
            model(on_device(np.zeros(shape, np.float32)))


# Whoever replaces a layer's forward, as a spy or a counter does, is heard.


def on_the_layer(layer, method):
    layer.forward = method.__get__(layer)


def on_its_class(layer, method):
    return patch.object(type(layer), "forward", method)


def on_the_base(layer, method):
    base = next(kind for kind in type(layer).__mro__ if "forward" in vars(kind))
    return patch.object(base, "forward", method)


def by_any_call(layer, method):
    return patch.object(
        nn.Module, "__call__", lambda self, x: (method if self is layer else type(self).forward)(self, x)
    )


CHAINS = {
    "convolution, pooling, ReLU": lambda rng: [nn.Conv2d(2, 3, 3, rng=rng), nn.MaxPool2d(2), nn.ReLU()],
    "convolution, ReLU, pooling": lambda rng: [nn.Conv2d(2, 3, 3, rng=rng), nn.ReLU(), nn.MaxPool2d(2)],
    "normalisation, ReLU": lambda rng: [nn.BatchNorm(2), nn.ReLU()],
}


@pytest.mark.parametrize("replace", [on_the_layer, on_its_class, on_the_base, by_any_call])
@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("name", CHAINS)
def test_a_forward_that_was_replaced_runs(name, replace, recompute):
    rng = np.random.default_rng(0)
    x = on_device(rng.normal(size=(16, 2, 10, 10)).astype(np.float32))
    for place in range(len(CHAINS[name](rng))):
        layers = CHAINS[name](np.random.default_rng(1))
        model = nn.Sequential(*layers)
        model.to(device=DEVICE)
        if recompute:
            model = recomputed(model, 1)
        called, original = [], type(layers[place]).forward

        def spy(self, x, called=called, original=original):
            called.append(self)
            return original(self, x) * -2.0

        with patch.object(conv_pool, "LEAST", 1):
            expected = x
            for i, layer in enumerate(layers):
                expected = type(layer).forward(layer, expected) * (-2.0 if i == place else 1.0)
            replaced = replace(layers[place], spy)
            with replaced or nullcontext(), Tape():
                y = model(x)
        assert layers[place] in called, f"{layers[place]} of {name} was passed over"
        np.testing.assert_allclose(y.numpy(), expected.numpy(), rtol=1e-5, atol=1e-5)


def test_a_model_with_a_forward_of_its_own_is_not_recomputed():
    model = nn.Sequential(nn.ReLU(), nn.Tanh())
    vars(model)["forward"] = lambda x: x
    with pytest.raises(ValueError, match="a model with a forward of its own"):
        recomputed(model)
