"""Laws of minigrad/tape.py, module.py, optim.py and train.py: a mistake is named in one line, with what
was given, what is needed, and the way out.
"""

import re
from typing import Any

import numpy as np
import pytest

from minigrad import Parameter, Tape, Tensor, nn, ops, optim
from minigrad.data import Batch
from minigrad.serial import Serial
from minigrad.testing import DEVICE, on_device
from minigrad.train import accuracy, fit

RNG = np.random.default_rng(0)
NONE: Any = None


def zeros(*shape):
    return on_device(np.zeros(shape))


def whole(*numbers):
    return on_device(np.array(numbers))


def squares():
    """A parameter, and its squares with the tape that recorded them."""
    w = Parameter(zeros(3))
    with Tape() as tape:
        y = w * w
    return tape, w, y


def backward_twice():
    tape, _, y = squares()
    loss = y
    tape.backward(loss, 1.0)
    tape.backward(loss, 1.0)


def op_on_a_spent_tape():
    tape, w, y = squares()
    tape.backward(y, 1.0)
    with tape:
        _ = y * 2.0


def leaf_on_a_spent_tape():
    tape, w, y = squares()
    tape.backward(y, 1.0)
    with tape:
        _ = w * 2.0


def another_tape_in_the_middle():
    _, _, y = squares()
    with Tape():
        _ = y * 2.0


def another_tape_for_backward():
    _, _, y = squares()
    Tape().backward(y, 1.0)


def layers(*sizes):
    return nn.Sequential(*(nn.Linear(a, b, rng=RNG) for a, b in sizes)).to(device=DEVICE)


def images():
    return nn.Sequential(nn.ReLU(), nn.Conv2d(3, 4, 5, rng=RNG)).to(device=DEVICE)


TAPES = {
    "backward twice": (backward_twice, RuntimeError, "spent.*forward pass again"),
    "op on a spent tape": (op_on_a_spent_tape, RuntimeError, "spent.*new Tape"),
    "leaf on a spent tape": (leaf_on_a_spent_tape, RuntimeError, "spent.*new Tape"),
    "no seed": (lambda: squares()[2].backward(), ValueError, r"\(3,\) needs a seed.*mean"),
    "seed of another shape": (lambda: squares()[2].backward(zeros(2)), ValueError, r"\(2,\).*\(3,\)"),
    "tensor of another tape": (another_tape_in_the_middle, RuntimeError, r"\(3,\).*another tape.*detach"),
    "loss of another tape": (another_tape_for_backward, RuntimeError, "not on this tape.*with Tape"),
    "loss of no tape": (lambda: Tensor(zeros()).backward(), RuntimeError, "with Tape.*constant"),
    "loss without a tape, on a tape": (
        lambda: Tape().backward(Tensor(zeros())),
        RuntimeError,
        "not on this tape",
    ),
    "integers that require grad": (lambda: Parameter(whole(1, 2)), TypeError, "int.*gradient.*astype"),
}

LAYERS = {
    "second linear": (
        lambda: layers((3, 4), (5, 2))(zeros(1, 3)),
        ValueError,
        r"layer 1, in Linear\(5, 2\).*\(1, 4\).*\(2, 5\)",
    ),
    "nested": (
        lambda: nn.Sequential(nn.ReLU(), layers((3, 4)))(zeros(1, 2)),
        ValueError,
        r"layer 1, layer 0, in Linear\(3, 4\)",
    ),
    "convolution": (
        lambda: images()(zeros(1, 2, 8, 8)),
        ValueError,
        r"layer 1, in Conv2d\(3, 4, 5\).*\(1, 2, 8, 8\)",
    ),
    "window": (lambda: images()(zeros(1, 3, 4, 4)), ValueError, r"layer 1, in Conv2d.*\(5, 5\).*\(4, 4\)"),
    "dropout": (lambda: nn.Dropout(1.5, rng=RNG), ValueError, "0 <= p < 1, got 1.5"),
    "groups": (lambda: nn.Conv2d(3, 4, 3, groups=2, rng=RNG), ValueError, "groups=2.*3 input.*4 output"),
    "no forward": (lambda: nn.Module()(zeros(1)), NotImplementedError, "Module needs a forward"),
}

W = [Parameter(np.zeros(2))]
OPTIMIZERS = {
    "lr": (lambda: optim.SGD(W, 0.0), ValueError, "lr must be positive, got 0.0"),
    "lr that is no number": (lambda: optim.SGD(W, float("nan")), ValueError, "lr must be positive, got nan"),
    "momentum": (lambda: optim.SGD(W, 0.1, momentum=-0.5), ValueError, "momentum.*negative, got -0.5"),
    "nesterov": (lambda: optim.SGD(W, 0.1, nesterov=True), ValueError, "nesterov needs a momentum"),
    "weight decay": (lambda: optim.Adam(W, weight_decay=-1), ValueError, "weight_decay.*-1"),
    "betas": (lambda: optim.Adam(W, betas=(0.9, 1.0)), ValueError, r"\[0, 1\), got \(0.9, 1.0\)"),
    "eps": (lambda: optim.Adagrad(W, eps=-1e-8), ValueError, "eps.*-1e-08"),
}

BATCH = Batch(np.ones((4, 2), np.float32), np.zeros((4, 1), np.float32))


def trained_by(loss, forward=None):
    """A step of a linear model on ``BATCH``, whose loss function or forward is a mistake."""

    class Net(nn.Module):
        def __init__(self):
            self.layer = nn.Linear(2, 1, rng=0)

        def forward(self, x):
            return forward(self.layer(x)) if forward else self.layer(x)

    return lambda: Serial().step(Net(), BATCH, loss)


def fitted(**settings):
    model = nn.Linear(2, 1, rng=0)
    return lambda: fit(model, optim.SGD(model.parameters(), 0.1), ops.mse, BATCH, **settings)


HABITS = {
    "a vector loss": (
        trained_by(lambda out, y: (out - y) ** 2),
        ValueError,
        r"a tensor of shape \(4, 1\).*\.mean\(\)",
    ),
    "a loss of .data": (
        trained_by(lambda out, y: Tensor(out.data).mean()),
        ValueError,
        "does not depend.*without .data",
    ),
    "a detached loss": (trained_by(lambda out, y: ops.mse(out.detach(), y)), ValueError, "does not depend"),
    "a loss that is a number": (trained_by(lambda out, y: 1.0), TypeError, "returned float.*without .data"),
    "a loss in NumPy": (
        trained_by(lambda out, y: ((out.data - y) ** 2).mean()),
        TypeError,
        "returned float32",
    ),
    "a forgotten loss": (trained_by(lambda out, y: None), TypeError, "returned NoneType"),
    "a forgotten return": (
        trained_by(ops.mse, lambda x: None),
        TypeError,
        "forward of Net returned None.*return",
    ),
    "an output of .data": (
        trained_by(ops.mse, lambda x: Tensor(x.data)),
        RuntimeError,
        "constants only, such as .data",
    ),
    "a batch size of 0": (fitted(batch_size=0), ValueError, "batch_size must be at least 1, got 0"),
    "a batch size of 0, counting": (
        lambda: accuracy(nn.ReLU(), BATCH, batch_size=0),
        ValueError,
        "batch_size must be at least 1, got 0",
    ),
    "a sample of a batch": (
        lambda: BATCH[3],  # pyright: ignore
        TypeError,
        r"array of rows, got 3; write batch\[\[3\]\]",
    ),
    "an element of a batch": (lambda: BATCH[0, 1], TypeError, r"array of rows, got \(0, 1\)"),
    "a list of layers": (
        lambda: nn.Sequential([nn.ReLU()]),  # pyright: ignore
        TypeError,
        r"got a list; write Sequential\(\*layers\)",
    ),
    "a class for a layer": (
        lambda: nn.Sequential(nn.ReLU),  # pyright: ignore
        TypeError,
        r"the class ReLU; make a layer of it, ReLU\(",
    ),
    "a function for a layer": (
        lambda: nn.Sequential(ops.relu),  # pyright: ignore
        TypeError,
        "got function.*forward",
    ),
    "a stride by position": (
        lambda: nn.Conv2d(1, 2, 3, 2),  # pyright: ignore
        TypeError,
        "Conv2d takes 3 .*by name: stride=, padding=",
    ),
    "a bias by position": (
        lambda: nn.Linear(2, 3, False),  # pyright: ignore
        TypeError,
        "Linear takes 2 .*by name: rng=, bias=, dtype=",
    ),
    "an eps by position": (
        lambda: nn.BatchNorm(3, 1e-5),  # pyright: ignore
        TypeError,
        "BatchNorm takes 1 .*by name: momentum=, eps=",
    ),
    "a setting of a layer without any": (
        lambda: nn.ReLU(True),  # pyright: ignore
        TypeError,
        r"ReLU takes no arguments; write ReLU\(\)",
    ),
    "a momentum by position": (
        lambda: optim.SGD(W, 0.1, 0.9),  # pyright: ignore
        TypeError,
        "SGD takes 2 .*by name: momentum=",
    ),
    "a backend by position": (
        lambda: fit(*[NONE] * 5),
        TypeError,
        "fit takes 4 .*by name: backend=, epochs=",
    ),
}

ALL = [
    pytest.param(*case, id=f"{group}: {name}")
    for group, cases in (("tape", TAPES), ("layer", LAYERS), ("optimizer", OPTIMIZERS), ("habit", HABITS))
    for name, case in cases.items()
]


@pytest.mark.parametrize(("mistake", "kind", "words"), ALL)
def test_a_mistake_is_named_in_one_line(mistake, kind, words):
    with pytest.raises(kind) as caught:
        mistake()
    message = str(caught.value)
    assert "\n" not in message
    assert re.search(words, message), message
