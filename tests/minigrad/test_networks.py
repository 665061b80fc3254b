"""Laws of minigrad/models.py and testing.py: whole networks keep one dtype all the way through, have the
gradients of differences, and learn.
"""

import numpy as np
import pytest

from minigrad import Tape, Tensor, nn, ops, optim, testing
from minigrad.memory import retained_arrays
from minigrad.testing import DEVICE, on_device

LABELS = np.arange(6) % 10


def lenet(dtype):
    rng = np.random.default_rng(0)
    kind = {"rng": rng, "dtype": dtype}
    return nn.Sequential(
        nn.Conv2d(1, 4, 5, padding=2, **kind), nn.BatchNorm(4, dtype=dtype), nn.Tanh(), nn.AvgPool2d(2),
        nn.Conv2d(4, 6, 3, bias=False, **kind), nn.GELU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(54, 20, **kind), nn.LayerNorm(20, dtype=dtype), nn.ReLU(), nn.Dropout(0.1, rng=rng),
        nn.Linear(20, 10, **kind),
    ).to(device=DEVICE)  # fmt: skip


def images(dtype):
    return np.random.default_rng(1).normal(size=(6, 1, 16, 16)).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_parameter_activation_and_gradient_has_the_models_dtype(dtype):
    model = lenet(dtype)
    x = Tensor(on_device(images(dtype)), requires_grad=True)
    assert isinstance(model, nn.Sequential)
    with Tape() as tape:
        h = x
        for layer in model.layers:
            h = layer(h)
            assert h.dtype == dtype, layer
        loss = ops.cross_entropy(h, on_device(LABELS))
        assert loss.dtype == dtype
    indices = (np.int64, bool, np.uint8, np.intp, np.int8)
    arrays = retained_arrays([entry for entry in tape.entries if isinstance(entry, list)])
    assert {d.dtype for d in arrays} <= set(map(np.dtype, (dtype, *indices)))
    tape.backward(loss)
    for name, p in model.named_parameters().items():
        assert p.grad is not None, name
        assert (p.dtype, p.grad.dtype, p.grad.shape) == (dtype, dtype, p.shape), name
    assert x.grad is not None
    assert x.grad.dtype == dtype


@pytest.mark.parametrize("make", [optim.SGD, optim.Adagrad, optim.Adam, optim.AdamW])
def test_a_step_leaves_float32_parameters_float32(make):
    model = lenet(np.float32)
    optimizer = make(model.parameters(), 0.01, weight_decay=0.1)
    with Tape() as tape:
        loss = ops.cross_entropy(model(on_device(images(np.float32))), on_device(LABELS))
    tape.backward(loss)
    optimizer.step()
    assert {p.dtype for p in model.parameters()} == {np.dtype(np.float32)}
    states = [a for state in optimizer.state for a in retained_arrays(state)]
    assert all(a.dtype == np.float32 for a in states)


def test_the_gradient_of_a_whole_network_is_the_central_difference():
    """Smooth layers only: a maximum somewhere in a deep net is always near a tie."""
    rng = np.random.default_rng(0)
    model = nn.Sequential(
        nn.Conv2d(1, 2, 3, rng=rng, dtype=np.float64), nn.BatchNorm(2, dtype=np.float64), nn.Tanh(),
        nn.AvgPool2d(2), nn.Flatten(), nn.Linear(18, 4, rng=rng, dtype=np.float64),
    ).to(device=DEVICE)  # fmt: skip
    parameters = list(model.named_parameters().values())

    def loss(x, *weights):
        h = ops.batch_norm(ops.conv2d(x, *weights[:2]), *weights[2:4])
        h = ops.avg_pool2d(ops.tanh(h), kernel=2)
        return ops.cross_entropy(ops.linear(ops.flatten(h, start_axis=1), *weights[4:]), on_device([0, 3, 1]))

    x, weights = on_device(np.random.default_rng(2).normal(size=(3, 1, 8, 8))), [p.data for p in parameters]
    with Tape():
        of_model = ops.cross_entropy(model(x), on_device([0, 3, 1]))
        assert np.allclose(of_model.numpy(), loss(x, *weights).numpy())
    testing.gradient_matches_difference(loss, x, *weights)


@pytest.mark.parametrize("make", [optim.SGD, optim.Adagrad, optim.Adam, optim.AdamW])
def test_training_fits_a_few_samples(make):
    model = lenet(np.float32)
    optimizer = make(model.parameters(), 0.05 if make is not optim.SGD else 0.1)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        with Tape() as tape:
            loss = ops.cross_entropy(model(on_device(images(np.float32))), on_device(LABELS))
        tape.backward(loss)
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.2 * losses[0]
