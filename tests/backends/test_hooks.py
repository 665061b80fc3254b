"""Laws of backends/hooks.py: hooks, buffers, losses and nets of one's own, by every exact strategy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.hooks import Hooks
from minigrad import Tape, Tensor, nn
from tests.backends.own_net_laws import (
    LAYOUTS,
    LOSSES,
    an_own_net_goes_on_in_another_layout,
    an_own_net_trains_like_serial,
    hooks_are_layers_in_their_place,
    net,
    recomputed_layers_have_their_hooks,
    tokens_train_like_serial,
)


@pytest.mark.parametrize("name", LAYOUTS)
@settings(max_examples=settings().max_examples // 3)
@given(
    sizes=st.lists(st.integers(3, 9), min_size=1, max_size=2),
    loss=st.sampled_from(list(LOSSES)),
    seed=st.integers(0, 99),
)
def test_an_own_net_trains_like_serial(name, sizes, loss, seed):
    an_own_net_trains_like_serial(name, sizes, loss, seed)


@pytest.mark.parametrize("ranks", [2, 3])
def test_own_layers_of_tokens_train_like_serial(ranks):
    tokens_train_like_serial(ranks, 3, 7)


@pytest.mark.parametrize(("before", "after"), [("data", "zero 3"), ("zero 2", "layers"), ("model", "data")])
def test_an_own_net_goes_on_in_another_layout(before, after):
    an_own_net_goes_on_in_another_layout(before, after, [7, 5, 6], 2)


def test_hooks_are_layers_in_their_place():
    hooks_are_layers_in_their_place()


def test_recomputed_layers_have_their_hooks():
    recomputed_layers_have_their_hooks(3)


def test_hooks_that_return_nothing_change_nothing():
    model, x = net(np.random.default_rng(0)).eval(), Tensor(np.ones((2, 5)))
    shapes = []
    with Hooks(model, forward={"1": lambda y: shapes.append(y.shape)}), Tape():
        y = model(x)
    assert model(x).numpy().tolist() == y.numpy().tolist() and shapes == [(2, 5)]


def test_layers_that_compute_together_are_seen_one_by_one():
    model, least = nn.Sequential(nn.Linear(2, 2, rng=0), nn.ReLU()), []
    with Hooks(model, forward={"0": lambda y: least.append(y.data.min())}):
        model(Tensor(-np.ones((3, 2), np.float32) * np.sign(vars(model[0])["weight"].data[0])))
    assert least[0] < 0


def test_what_cannot_be_is_refused():
    model = net(np.random.default_rng(0))
    with pytest.raises(ValueError, match="no layer '7' for a hook; there are 0, 0.gate, 0.left"):
        Hooks(model, backward={"7": print})
    with Hooks(model), pytest.raises(RuntimeError, match="give one Hooks all"), Hooks(model):
        pass
