"""Laws of minigrad/module.py: modules in lists, tuples and dicts, and these in one another, are
found, named, trained and replaced.
"""

from copy import deepcopy
from typing import Any, NamedTuple

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from backends.comm import run_ranks
from backends.data_parallel import DataParallel
from backends.data_parallel.zero.sharded import Sharded
from backends.laws import trains_like_serial
from backends.model_parallel.model_parallel import ModelParallel
from minigrad import Parameter, nn, ops, optim
from minigrad.module import Module
from minigrad.serial import Serial
from tests.nets import small_images_of as batches_of

WIDTH = 6
KEYS = st.text("abcxyz", min_size=1, max_size=2) | st.integers(0, 3)


class Pair(NamedTuple):
    first: Any
    second: Any


def nested(leaf):
    """Lists, tuples, named tuples and dicts of what ``leaf`` draws."""
    return st.recursive(
        leaf,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.lists(inner, max_size=3).map(tuple)
            | st.builds(Pair, inner, inner)
            | st.dictionaries(KEYS, inner, max_size=3)
        ),
        max_leaves=6,
    )


# What stands for a layer is its number of units inside; None, text and numbers are no layers.
structures = nested(st.sampled_from([1, 2]) | st.sampled_from([None, "text"]))


def built(structure, rng):
    """The structure with layers in the places of numbers."""
    if isinstance(structure, int):
        layers = [nn.Linear(WIDTH, WIDTH, rng=rng) for _ in range(structure)]
        return layers[0] if structure == 1 else nn.Sequential(*layers)
    if isinstance(structure, dict):
        return {key: built(item, rng) for key, item in structure.items()}
    if isinstance(structure, Pair):
        return Pair(*(built(item, rng) for item in structure))
    if isinstance(structure, list | tuple):
        return type(structure)(built(item, rng) for item in structure)
    return structure


def flat(value, name):
    """(name, layer) of each layer, by an independent walk."""
    if isinstance(value, Module):
        return [(name, value)]
    items: Any = value.items() if isinstance(value, dict) else enumerate(value or ())
    if not isinstance(value, dict | list | tuple):
        return []
    return [pair for key, item in items for pair in flat(item, f"{name}.{key}")]


class Net(nn.Module):
    def __init__(self, structure, rng):
        self.first = nn.Linear(WIDTH, WIDTH, rng=rng)
        self.inside = built(structure, rng)
        self.last = nn.Linear(WIDTH, 3, rng=rng)

    def forward(self, x):
        x = ops.tanh(self.first(x.reshape(-1, WIDTH)))
        for _, layer in flat(self.inside, ""):
            x = ops.tanh(layer(x)) + x
        return self.last(x)


def unique_names(structure):
    names = [name for name, _ in flat(built(structure, np.random.default_rng(0)), "inside")]
    return len(names) == len(set(names))


drawn = structures.filter(unique_names)


@given(structure=drawn)
def test_every_parameter_is_found_under_its_path(structure):
    model = Net(structure, np.random.default_rng(0))
    layers = [("first", model.first), *flat(model.inside, "inside"), ("last", model.last)]
    expected = {}
    for name, layer in layers:
        inner = (
            [(f"{name}.{i}", one) for i, one in enumerate(layer.layers)]
            if isinstance(layer, nn.Sequential)
            else [(name, layer)]
        )
        for one_name, one in inner:
            expected |= {f"{one_name}.{own}": value for own, value in vars(one).items()}
    actual = model.named_parameters()
    assert actual.keys() == expected.keys()
    assert all(actual[name] is p for name, p in expected.items())


@given(structure=drawn)
def test_training_moves_all_of_them_and_a_copy_goes_the_same_way(structure):
    model = Net(structure, np.random.default_rng(0)).to(dtype=np.float64)
    again, start = deepcopy(model), model.state_dict()
    for trained in (model, again):
        method = optim.SGD(trained.parameters(), 0.1)
        Serial().step(trained, batches_of([5])[0], ops.cross_entropy)
        method.step()
    assert all((value != start[name]).any() for name, value in model.state_dict().items())
    assert all((value == again.state_dict()[name]).all() for name, value in model.state_dict().items())
    again.load_state_dict(start)
    assert all((value == start[name]).all() for name, value in again.state_dict().items())


@given(structure=drawn, stage=st.integers(0, 3), sizes=st.lists(st.integers(1, 5), min_size=1, max_size=2))
def test_ranks_train_them_like_serial(structure, stage, sizes):
    make = DataParallel if stage == 0 else lambda comm: Sharded(comm, stage=stage)

    def work(comm):
        trains_like_serial(make, comm, lambda rng: Net(structure, rng), ops.cross_entropy, batches_of(sizes))

    run_ranks(2, work)


@given(structure=drawn, data=st.data())
def test_ranks_share_the_neurons_of_any_of_them(structure, data):
    names = [
        n
        for n, layer in flat(built(structure, np.random.default_rng(0)), "inside")
        if not isinstance(layer, nn.Sequential)
    ]
    plan = {name: data.draw(st.sampled_from(["column", "row", "gathered"])) for name in [*names, "last"]}

    def work(comm):
        trains_like_serial(
            lambda comm: ModelParallel(comm, plan),
            comm,
            lambda rng: Net(structure, rng),
            ops.cross_entropy,
            batches_of([4, 3]),
        )

    run_ranks(2, work)


class Heads(nn.Module):
    def __init__(self, **attributes):
        vars(self).update(attributes)


def linear():
    return nn.Linear(2, 2, rng=np.random.default_rng(0))


@pytest.mark.parametrize(
    ("attributes", "kind", "message"),
    [
        ({"scales": [Parameter(np.ones(2))]}, TypeError, r"Heads.scales.0 is a Parameter that an optimizer"),
        ({"scales": {"a": (Parameter(np.ones(2)),)}}, TypeError, r"Heads.scales.a.0 is a Parameter"),
        ({"layers": {linear()}}, TypeError, "layers is a set, whose order"),
        ({"layers": [frozenset([linear()])]}, TypeError, "layers.0 is a set, whose order"),
        ({"layers": {1: linear(), "1": linear()}}, ValueError, "Heads has two modules called layers.1"),
        ({"layers": {"a.b": linear(), "a": {"b": linear()}}}, ValueError, "two modules called layers.a.b"),
    ],
)  # fmt: skip
def test_what_would_not_be_trained_is_refused(attributes, kind, message):
    with pytest.raises(kind, match=message):
        Heads(**attributes).parameters()


def test_a_list_may_hold_parameters_that_are_attributes_too():
    scale = Parameter(np.ones(2))
    assert Heads(scale=scale, all=[scale]).parameters() == [scale]


def test_a_sequence_with_more_than_its_layers_has_that_too():
    class Headed(nn.Sequential):
        def __init__(self):
            super().__init__(linear(), nn.Tanh())
            self.head = linear()

    assert list(Headed().named_parameters().keys()) == ["0.weight", "0.bias", "head.weight", "head.bias"]
