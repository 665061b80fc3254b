"""Modules: names, state, conversion."""

import numpy as np
import pytest

from minigrad import Parameter, Tape, nn, ops
from minigrad.testing import DEVICE, on_device


def net(seed=0, **kind):
    rng = np.random.default_rng(seed)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, rng=rng, **kind), nn.BatchNorm(4, **kind), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(36, 3, rng=rng, **kind),
    ).to(device=DEVICE)  # fmt: skip


class Block(nn.Module):
    """A module with a parameter, a list of modules and a child."""

    def __init__(self):
        rng = np.random.default_rng(0)
        self.scale = Parameter(np.ones(2))
        self.towers = [nn.Linear(2, 2, rng=rng, bias=False), nn.LayerNorm(2)]
        self.last = nn.Sequential(nn.Tanh(), nn.Linear(2, 1, rng=rng))
        self.depth = 3


NAMES = ["0.weight", "0.bias", "1.weight", "1.bias", "5.weight", "5.bias"]


def test_parameters_are_named_by_position_in_a_sequence():
    assert list(net().named_parameters()) == NAMES


def test_parameters_are_named_by_attribute_elsewhere_and_by_place_in_lists():
    assert list(Block().named_parameters()) == [
        "scale", "towers.0.weight", "towers.1.weight", "towers.1.bias", "last.1.weight", "last.1.bias",
    ]  # fmt: skip


def test_state_holds_the_running_statistics_too():
    assert set(net().state_dict()) == {*NAMES, "1.running_mean", "1.running_var"}


def test_state_goes_round():
    first, second = net(0), net(1)
    arrays = {name: p.data for name, p in second.named_parameters().items()}
    x = on_device(np.random.default_rng(2).normal(size=(2, 1, 8, 8)).astype(np.float32))
    with Tape():
        first(x)  # moves the running statistics
    second.load_state_dict(first.state_dict())
    assert np.array_equal(first(x).numpy(), second(x).numpy())
    assert all(p.data is arrays[name] for name, p in second.named_parameters().items())


def test_a_state_is_a_copy():
    model = net()
    state = model.state_dict()
    for value in state.values():
        value += 1
    assert not any(np.array_equal(value, state[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize(
    ("spoil", "kind", "words"),
    [
        (lambda s: s.pop("5.bias"), KeyError, "lacks 5.bias.*different model"),
        (lambda s: s.update(extra=np.zeros(1)), KeyError, "no extra"),
        (lambda s: s.update({"5.weight": np.zeros((3, 35))}), ValueError, r"5.weight.*\(3, 36\).*\(3, 35\)"),
    ],
    ids=["missing", "unknown", "shape"],
)
def test_a_state_that_does_not_fit_leaves_the_model_unchanged(spoil, kind, words):
    model, state = net(0), net(1).state_dict()
    before = model.state_dict()
    spoil(state)
    with pytest.raises(kind, match=words):
        model.load_state_dict(state)
    assert all(np.array_equal(before[name], value) for name, value in model.state_dict().items())


def test_to_converts_parameters_and_statistics_and_forgets_gradients():
    model = net()
    for p in model.parameters():
        p.grad = p.data
    assert model.to(dtype=np.float64) is model
    assert {value.dtype for value in model.state_dict().values()} == {np.dtype(np.float64)}
    assert all(p.grad is None for p in model.parameters())


def test_an_unknown_device_is_refused():
    with pytest.raises(ValueError, match="tpu.*numpy or cupy"):
        net().to(device="tpu")


def test_a_tied_parameter_is_listed_once_under_its_first_name():
    rng = np.random.default_rng(0)
    model = nn.Sequential(nn.Linear(3, 3, rng=rng), nn.Tanh(), nn.Linear(3, 3, rng=rng))
    first, last = model[0], model[2]
    assert isinstance(first, nn.Linear) and isinstance(last, nn.Linear)
    last.weight = first.weight
    assert list(model.named_parameters()) == ["0.weight", "0.bias", "2.bias"]
    assert set(model.state_dict()) == {"0.weight", "0.bias", "2.weight", "2.bias"}
    model.to(dtype=np.float64)
    assert last.weight is first.weight


def test_the_same_layer_twice_is_one_set_of_parameters():
    layer = nn.Linear(2, 2, rng=np.random.default_rng(0))
    assert len(nn.Sequential(layer, layer).parameters()) == 2


def test_layers_say_what_they_are():
    assert repr(net()) == (
        "Sequential(Conv2d(1, 4, 3), BatchNorm(4), ReLU(), MaxPool2d(2), Flatten(), Linear(36, 3))"
    )


def test_weights_are_drawn_from_the_generator_within_their_bound():
    rng = np.random.default_rng(5)
    first = nn.Linear(16, 8, rng=rng)
    second = nn.Linear(16, 8, rng=np.random.default_rng(5))
    assert np.array_equal(first.weight.numpy(), second.weight.numpy())
    assert not np.array_equal(first.weight.numpy(), nn.Linear(16, 8, rng=rng).weight.numpy())
    assert 0.2 < abs(first.weight.numpy()).max() <= 0.25


def test_an_embedding_looks_rows_up():
    table = nn.Embedding(5, 2, rng=np.random.default_rng(0)).to(device=DEVICE)
    assert isinstance(table, nn.Embedding)
    assert np.array_equal(table(on_device([4, 4])).numpy(), table.weight.numpy()[[4, 4]])


@pytest.mark.parametrize(
    ("layer", "op"),
    [(nn.ReLU, ops.relu), (nn.Sigmoid, ops.sigmoid), (nn.Tanh, ops.tanh), (nn.GELU, ops.gelu),
     (nn.Softmax, ops.softmax), (nn.LeakyReLU, ops.leaky_relu)],
)  # fmt: skip
def test_layers_without_parameters_are_their_ops(layer, op):
    x = on_device(np.linspace(-2, 2, 12).reshape(3, 4))
    assert np.array_equal(layer()(x).numpy(), op(x).numpy())
    assert layer().parameters() == []
