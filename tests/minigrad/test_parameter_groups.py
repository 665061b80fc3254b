"""Laws of minigrad/optim.py: groups of parameters with settings of their own."""

import copy
import pickle
import re
from functools import partial

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from minigrad import Parameter, nn, optim
from minigrad.device import to_host
from minigrad.optim import ParametersElsewhere
from minigrad.testing import on_device
from tests.minigrad.optim_laws import (
    CASES,
    CLIPPED,
    GROUPED,
    RATES,
    a_rate_scales_all_groups,
    groups_follow_the_recurrence,
)


def matrix() -> Parameter:
    return Parameter(on_device(np.ones((2, 2))))


@pytest.mark.parametrize("name", CLIPPED)
@given(data=st.data(), limit=st.none() | st.floats(0.3, 8.0), seed=st.integers(0, 999))
def test_each_group_follows_the_recurrence_with_its_settings(name, data, limit, seed):
    make, recurrence, drawn = CLIPPED[name]
    settings = [data.draw(drawn)]
    for group in GROUPED:
        some = data.draw(drawn)
        names = data.draw(st.sets(st.sampled_from(sorted(some)))) if group else ()
        # a nesterov step without momentum is refused
        names = {*names, "momentum", "nesterov"} if "nesterov" in names else names
        settings.append({name: some[name] for name in names})
    groups_follow_the_recurrence(make, recurrence, settings, limit, seed)


@pytest.mark.parametrize("make", optim.OPTIMIZERS.values(), ids=optim.OPTIMIZERS)
@given(
    ratios=st.lists(st.sampled_from([1.0, 0.1, 3.0]), min_size=1, max_size=3),
    rates=st.lists(st.just(0.0) | RATES, min_size=1, max_size=4),
    seed=st.integers(0, 999),
)
def test_the_rate_of_the_optimizer_scales_those_of_groups(make, ratios, rates, seed):
    a_rate_scales_all_groups(make, ratios, rates, seed)


@pytest.mark.parametrize("name", CASES)
@given(data=st.data(), seed=st.integers(0, 99))
def test_groups_without_settings_change_no_bit(name, data, seed):
    make, _, drawn = CASES[name]
    settings, ends = data.draw(drawn), []
    for split in (False, True):
        rng = np.random.default_rng(seed)
        ws = [Parameter(on_device(rng.normal(size=shape))) for shape in ((2, 2), (), (3,))]
        optimizer = make([{"params": ws[:1]}, {"params": iter(ws[1:])}] if split else ws, **settings)
        for _ in range(3):
            for w in ws:
                w.grad = on_device(np.asarray(rng.normal(size=w.shape)))
            optimizer.step()
        ends.append([to_host(w.data).tolist() for w in ws])
    assert ends[0] == ends[1]


@given(st.lists(st.sampled_from([(), (3,), (2, 3), (2, 1, 1), (0,)]), min_size=1, max_size=6))
def test_only_parameters_of_two_or_more_axes_decay(shapes):
    parameters = [Parameter(on_device(np.ones(shape))) for shape in shapes]
    optimizer = optim.SGD(optim.decay_groups(parameters, 0.5), 0.1)
    assert optimizer.parameters == sorted(parameters, key=lambda p: p.ndim < 2)
    for w in parameters:
        w.grad = on_device(np.zeros(w.shape))
    optimizer.step()
    for w in parameters:
        assert np.all(to_host(w.data) == (0.95 if len(w.shape) > 1 else 1.0))


def test_a_tied_parameter_is_in_one_of_the_groups():
    rng = np.random.default_rng(0)
    first, last = nn.Linear(3, 3, rng=rng), nn.Linear(3, 3, rng=rng)
    last.weight = first.weight
    groups = optim.decay_groups(nn.Sequential(first, last).parameters(), 0.1)
    assert [group["params"] for group in groups] == [[first.weight], [first.bias, last.bias]]


def test_a_rank_whose_layers_have_none_has_groups_of_none():
    optimizer = optim.AdamW(optim.decay_groups(ParametersElsewhere(), 0.1), 0.1)
    assert optimizer.parameters == []
    optimizer.step()
    optim.SGD([{"params": ParametersElsewhere(), "lr": 0.1}], 0.5).clipped(1.0).step()


def test_settings_by_name_and_a_rate_that_all_groups_give():
    optimizer = optim.SGD(parameters=[{"params": [matrix()], "lr": 0.5}, {"params": [matrix()]}], lr=0.25)
    assert [group.lr for group in optimizer.groups] == [0.5, 0.25]
    assert "groups=[SGD(1 parameters of 4 elements, lr=0.5" in repr(optimizer)
    assert "groups" not in repr(optim.SGD([matrix()], 0.1))


class Own(optim.Optimizer):
    """An optimizer as a user writes one, with names of its own."""

    def __init__(self, weights, rate=0.5, *, gain=1.0):
        super().__init__(weights, rate)
        self.gain = gain

    def update(self, w, g, state, rate):
        w -= rate * self.gain * g


def test_an_own_optimizer_has_groups():
    ws = [matrix(), matrix()]
    for w in ws:
        w.grad = on_device(np.ones((2, 2)))
    Own([{"params": ws[:1]}, {"params": ws[1:], "gain": 0.5}], 0.25).step()
    assert [float(w.data[0, 0]) for w in ws] == [0.75, 0.875]


def test_the_rate_of_a_group_is_changed_by_its_ratio():
    """A rate that is set in a group itself would be lost at the next step, and is refused."""
    w = matrix()
    optimizer = optim.SGD([{"params": [w], "lr": 0.5}, {"params": [matrix()]}], 0.25)
    optimizer.groups[0].ratio = 3.0
    w.grad = on_device(np.ones((2, 2)))
    optimizer.step()
    assert np.all(to_host(w.data) == 0.25) and optimizer.groups[0].lr == 0.75
    optimizer.groups[0].lr = 0.1
    words = "the lr of a group was set to 0.1, and is 3 times that of the whole optimizer; set its ratio"
    with pytest.raises(ValueError, match=words):
        optimizer.step()
    assert np.all(to_host(w.data) == 0.25)


@pytest.mark.parametrize("own", [copy.deepcopy, lambda optimizer: pickle.loads(pickle.dumps(optimizer))])
def test_a_copy_has_groups_of_its_own(own):
    w = matrix()
    copied = own(optim.SGD([{"params": [w], "lr": 0.5}, {"params": [matrix()]}], 0.25))
    for parameter in copied.parameters:
        parameter.grad = on_device(np.ones((2, 2)))
    copied.step()
    assert [float(to_host(p.data)[0, 0]) for p in copied.parameters] == [0.5, 0.75]
    assert np.all(to_host(w.data) == 1)


@pytest.mark.parametrize(
    ("groups", "kind", "message"),
    [
        (lambda w: [{"params": [w]}, {"params": [w]}], ValueError, "a parameter is in two groups"),
        (lambda w: [{"params": []}, {"params": []}], ValueError, "got none, so nothing would be trained"),
        (lambda w: [{"params": [w], "lr": 0.0}], ValueError, "lr must be positive, got 0.0"),
        (lambda w: [{"params": [w], "momentum": -1}], ValueError, "momentum must not be negative, got -1"),
        (
            lambda w: [{"params": [w], "betas": (0.9, 0.9)}],
            TypeError,
            'a group for SGD is a dict with "params", a list of parameters, and settings, of lr, momentum, '
            "nesterov, weight_decay, maximize; got params, betas",
        ),
        (lambda w: ({"params": [p]} for p in (w,)), TypeError, "takes a list of groups, or a list of param"),
        (lambda w: [{"params": [w]}, [w]], TypeError, "got list"),
        (lambda w: [{"lr": 0.1}], TypeError, "got lr"),
        (lambda w: [{"params": w}], TypeError, "such as model.parameters(); got Parameter"),
        (lambda w: [{"params": [np.ones(2)]}], TypeError, "such as model.parameters(); got one of ndarray"),
    ],
)
def test_what_is_no_group_is_refused(groups, kind, message):
    with pytest.raises(kind, match=re.escape(message)):
        optim.SGD(groups(matrix()), 0.1)


@pytest.mark.parametrize("make", [partial(optim.SGD, lr=0.1), optim.Adam])
def test_a_parameter_that_comes_later_has_the_settings_of_the_whole_optimizer(make):
    first, later = matrix(), matrix()
    optimizer = make([{"params": [first], "weight_decay": 1.0}])
    optimizer.parameters.append(later)
    assert [group.weight_decay for group in optimizer.group_of_each()] == [1.0, 0.0]
