"""Laws of minigrad/module.py and train.py: `train` and `eval` set the mode of a module and of all
inside, whatever tape is open.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minigrad import Tape, Tensor, nn, ops, recomputed
from minigrad.data import Batch
from minigrad.device import to_host
from minigrad.optim import SGD
from minigrad.serial import Serial
from minigrad.testing import DEVICE, on_device
from minigrad.train import accuracy, fit


def net(seed=0):
    rng = np.random.default_rng(seed)
    inner = nn.Sequential(nn.Linear(4, 5, rng=rng), nn.BatchNorm(5), nn.Tanh(), nn.Dropout(0.5, rng=rng))
    return nn.Sequential(inner, nn.Linear(5, 3, rng=rng)).to(dtype=np.float64, device=DEVICE)


def batch(n=6):
    rng = np.random.default_rng(1)
    return Batch(on_device(rng.normal(size=(n, 4))), on_device(rng.integers(0, 3, n)))


def moved(model):
    """A model whose running statistics are no longer those of a new one."""
    Serial().step(model, batch(), ops.cross_entropy)
    for p in model.parameters():
        p.grad = None
    return model


def same_state(model, state):
    return all(np.array_equal(array, state[name]) for name, array in model.state_dict().items())


def test_a_new_model_is_in_training_mode_and_modes_reach_every_module():
    model = net()
    assert all(module.training for module in model.modules())
    assert model.eval() is model and not any(module.training for module in model.modules())
    assert model.train() is model and all(module.training for module in model.modules())
    assert len(list(model.modules())) == 7


@pytest.mark.parametrize("wrap", [lambda model: model, recomputed], ids=["recorded", "recomputed"])
def test_a_saliency_map_in_eval_mode_is_the_slope_of_what_is_evaluated(wrap):
    """No mask is drawn, no statistic moves, and the samples do not see one another."""
    model, x = wrap(moved(net())).eval(), batch().x
    state = model.state_dict()
    with Tape():
        images = Tensor(x, requires_grad=True)
        score = model(images)[:, 1].sum()
    score.backward()
    assert images.grad is not None and same_state(model, state)
    direction = np.random.default_rng(2).normal(size=x.shape[1])
    h = 1e-6
    ends = [to_host(model(x + on_device(s * direction)).data)[:, 1] for s in (h, -h)]
    np.testing.assert_allclose(to_host(images.grad) @ direction, (ends[0] - ends[1]) / (2 * h), rtol=1e-6)


def test_a_validation_loss_under_a_tape_is_the_one_without_and_changes_nothing():
    model = moved(net()).eval()
    state = model.state_dict()
    alone = ops.cross_entropy(model(batch().x), batch().y).item()
    with Tape():
        assert ops.cross_entropy(model(batch().x), batch().y).item() == alone
    assert same_state(model, state)


@given(steps=st.integers(1, 3))
def test_frozen_statistics_stay_while_the_rest_is_trained(steps):
    model = moved(net())
    norm = model.children()["0"].children()["1"].eval()
    state = model.state_dict()
    fit(model, SGD(model.parameters(), 0.1), ops.cross_entropy, batch(), epochs=steps)
    assert not norm.training and model.training
    changed = {name for name, array in model.state_dict().items() if not np.array_equal(array, state[name])}
    assert changed == {*model.named_parameters().keys()}


def test_without_a_tape_training_mode_draws_masks_and_moves_statistics():
    model = net()
    state = model.state_dict()
    first, second = (to_host(model(batch().x).data) for _ in range(2))
    assert not np.array_equal(first, second) and not same_state(model, state)


def test_accuracy_is_that_of_eval_mode_and_leaves_each_module_in_its_own():
    model = moved(net())
    model.children()["0"].eval()
    modes, state = [module.training for module in model.modules()], model.state_dict()
    assert accuracy(model, batch()) == accuracy(model, batch(), batch_size=1)
    assert [module.training for module in model.modules()] == modes and same_state(model, state)
    assert modes == [True, *[False] * 5, True]


def test_modes_come_back_after_an_error():
    model = net()
    with pytest.raises(ValueError, match="linear takes"):
        accuracy(model, Batch(batch().x[:, :2], batch().y))
    assert all(module.training for module in model.modules())


def test_fit_trains_a_model_that_was_in_eval_mode():
    model = net().eval()
    fit(model, SGD(model.parameters(), 0.1), ops.cross_entropy, batch())
    assert all(module.training for module in model.modules())
