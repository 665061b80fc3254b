"""Laws of minigrad/checked_entries.py: with MINIGRAD_CHECK=arrays an array that changes between forward
and backward is noticed, or not needed.
"""

import os
import subprocess
import sys

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from minigrad import Parameter, Tape, Tensor, nn, ops, optim, recomputed
from minigrad.data import Batch
from minigrad.device import to_host
from minigrad.serial import Serial
from minigrad.testing import on_device
from tests.minigrad.ops.op_table import TABLE, Case

FEWER = max(settings().max_examples // 2, 10)


@pytest.fixture
def checked(monkeypatch):
    monkeypatch.setenv("MINIGRAD_CHECK", "arrays")


def gradients(f, inputs, change=None):
    """Gradients of the sum of f's squares; ``change`` is called between forward and backward."""
    leaves = [
        Tensor(x.copy(order="K"), requires_grad=True)
        if isinstance(x, np.ndarray) and x.dtype.kind == "f"
        else x.copy() if isinstance(x, np.ndarray) else x
        for x in inputs
    ]  # fmt: skip
    with Tape() as tape:
        y = f(*leaves)
        loss = (y * y).sum()
    if loss.tape is None:
        return None
    if change is not None:
        change(leaves)
    tape.backward(loss)
    grads = [x.grad for x in leaves if isinstance(x, Tensor)]
    return [None if g is None else to_host(g).tobytes() for g in grads]


def spoil(array, place):
    """Change one element, by more than rounding."""
    index = np.unravel_index(place % array.size, array.shape)
    array[index] = not array[index] if array.dtype.kind == "b" else array[index] + 1


@pytest.mark.parametrize("case", TABLE, ids=lambda case: case.name)
@settings(max_examples=FEWER)
@given(data=st.data())
def test_a_changed_input_is_noticed_or_makes_no_difference(case: Case, data):
    f, inputs = case.draw(data)
    arrays = [i for i, x in enumerate(inputs) if isinstance(x, np.ndarray) and x.size]
    if not arrays:
        return
    which, place = data.draw(st.sampled_from(arrays)), data.draw(st.integers(0, 99))

    def change(leaves):
        x = leaves[which]
        spoil(x.data if isinstance(x, Tensor) else x, place)

    with pytest.MonkeyPatch.context() as patch:
        plain = gradients(f, inputs)
        patch.setenv("MINIGRAD_CHECK", "arrays")
        assert gradients(f, inputs) == plain
        try:
            grads = gradients(f, inputs, change)
        except RuntimeError as error:
            assert "needs for its gradient was changed between forward and backward" in str(error)
        else:
            assert grads == plain, "the gradient is another one, and nothing was said"


def net(rng):
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, rng=rng), nn.BatchNorm(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Dropout(0.2, rng=np.random.default_rng(1)), nn.Linear(16, 8, rng=rng), nn.LayerNorm(8),
        nn.GELU(), nn.Linear(8, 3, rng=rng),
    )  # fmt: skip


BATCH = Batch(np.random.default_rng(0).normal(size=(6, 1, 6, 6)), np.arange(6) % 3)


@pytest.mark.parametrize("wrap", [lambda model: model, recomputed], ids=["plain", "recomputed"])
def test_training_is_the_same_with_the_check(wrap, monkeypatch):
    ends = []
    for value in ("", "arrays", "all"):
        monkeypatch.setenv("MINIGRAD_CHECK", value)
        model = wrap(net(np.random.default_rng(0)))
        method = optim.SGD(model.parameters(), 0.1, momentum=0.9)
        for _ in range(3):
            method.zero_grad()
            Serial(2).step(model, BATCH, ops.cross_entropy)
            method.step()
        ends.append({name: value.tobytes() for name, value in model.state_dict().items()})
    assert ends[0] == ends[1] == ends[2]


@pytest.mark.usefixtures("checked")
@pytest.mark.parametrize(
    ("op", "f"),
    [
        ("multiply", lambda x, w: x * w),
        ("linear", lambda x, w: ops.linear(Tensor(x.data), w)),  # where only the weights' pullback is left
        ("matmul", lambda x, w: x @ w.T),
        ("exp", lambda x, w: ops.exp(x)),
        ("layer_norm", lambda x, w: ops.layer_norm(x, w[0], w[1])),
        ("group_norm", lambda x, w: ops.group_norm(x, w[0], w[1], groups=1)),
        ("cumprod", lambda x, w: ops.cumprod(x, axis=0)),
        ("softmax", lambda x, w: ops.softmax(x)),
        ("sigmoid", lambda x, w: ops.sigmoid(x)),
    ],
)
def test_the_op_is_named(op, f):
    w = Parameter(on_device(np.ones((3, 3))))
    x = Tensor(on_device(np.ones((3, 3))), requires_grad=True)
    with Tape() as tape:
        y = f(x, w)
        loss = y.sum()
    for array in (w.data, x.data, y.data):
        array[...] = 2
    with pytest.raises(RuntimeError, match=rf"an array of float64\(3,.*\) that {op} needs for its gradient"):
        tape.backward(loss)


@pytest.mark.usefixtures("checked")
def test_an_optimizer_step_between_two_tapes_is_noticed():
    w = Parameter(on_device(np.ones((2, 3))))
    x = Tensor(on_device(np.ones((4, 3))), requires_grad=True)
    tapes = []
    for _ in range(2):
        with Tape() as tape:
            tapes.append((tape, ops.linear(x, w).sum()))
    method = optim.SGD([w], 0.1)
    tapes[0][0].backward(tapes[0][1])
    method.step()
    with pytest.raises(RuntimeError, match="that linear needs for its gradient was changed"):
        tapes[1][0].backward(tapes[1][1])


@pytest.mark.usefixtures("checked")
def test_what_the_loss_does_not_reach_may_change():
    x, y = (Tensor(on_device(np.ones(3)), requires_grad=True) for _ in range(2))
    with Tape() as tape:
        loss, _ = (x * 2.0).sum(), y * y
    y.data[...] = 5
    tape.backward(loss)
    assert x.grad is not None and to_host(x.grad).tolist() == [2, 2, 2]


@pytest.mark.parametrize("value", ["xyz", "1", "ALL", "array"])
def test_what_is_no_check_is_refused(value, monkeypatch):
    monkeypatch.setenv("MINIGRAD_CHECK", value)
    with pytest.raises(ValueError, match=f"MINIGRAD_CHECK takes 'arrays', 'messages', 'all', got '{value}'"):
        Tape()


def test_the_command_refuses_it_in_one_line(tmp_path):
    command = [sys.executable, "-m", "backends", "train", "--epochs", "1"]
    env = {**os.environ, "MINIGRAD_CHECK": "xyz"}
    done = subprocess.run(command, env=env, capture_output=True, encoding="utf-8", timeout=120, cwd=tmp_path)
    assert done.returncode != 0
    (line,) = done.stderr.splitlines()
    assert "MINIGRAD_CHECK takes 'arrays', 'messages', 'all', got 'xyz'; unset it" in line
