"""Small networks, batches and a training step for models that are trained apart, all in double precision."""

import numpy as np

from backends.laws import bound_for
from minigrad import nn, ops, optim
from minigrad.data import Batch
from tests.nets import grouped


class Net(nn.Module):
    """A tied, an unused and a frozen parameter, and running statistics."""

    def __init__(self, rng):
        self.first = nn.Linear(6, 5, rng=rng)
        self.norm = nn.BatchNorm(5)
        self.tied = nn.Linear(5, 5, rng=rng)
        self.unused = nn.Linear(5, 5, rng=rng)
        self.last = nn.Linear(5, 3, rng=rng)
        self.first.weight.requires_grad = False

    def forward(self, x):
        h = ops.tanh(self.norm(self.first(x)))
        return self.last(ops.tanh(self.tied(ops.tanh(self.tied(h)))))


class Plain(Net):
    """Without batch-norm, whose statistics depend on the shares."""

    def __init__(self, rng):
        super().__init__(rng)
        self.norm = nn.ReLU()


OPTIMIZERS = {
    "sgd": lambda parameters: optim.SGD(parameters, 0.1, weight_decay=0.01),
    "momentum": lambda parameters: optim.SGD(parameters, 0.1, momentum=0.9),
    "nesterov": lambda parameters: optim.SGD(parameters, 0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
    "heavy ball": lambda parameters: optim.HeavyBall(parameters, 0.1),
    "adam": lambda parameters: optim.Adam(parameters, 0.01, eps=1e-3),
    "groups": grouped,
}


def built(build, rank=0):
    """The model that ``rank`` starts with."""
    return build(np.random.default_rng(rank)).to(dtype=np.float64)


def batches_of(sizes, dtype: type = np.float64):
    rng = np.random.default_rng(0)
    return [Batch(rng.normal(size=(n, 6)).astype(dtype), rng.integers(0, 3, n)) for n in sizes]


def step(backend, model, optimizer, batch):
    """One step and update; the loss."""
    optimizer.zero_grad()
    loss = backend.step(model, batch, ops.cross_entropy)
    backend.update(model, optimizer)
    return loss


def close(actual, expected, bound=None):
    """Assert that two dictionaries of arrays agree, relative to each array's largest element."""
    bound = bound_for(np.float64) if bound is None else bound
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        scale = max(float(np.abs(value).max(initial=0)), 1e-3)
        np.testing.assert_allclose(actual[name], value, rtol=0, atol=bound * scale, err_msg=name)


def states(optimizer):
    """What an optimizer keeps, by the parameter's number and the array's name."""
    return {f"{i}.{name}": np.array(x) for i, s in enumerate(optimizer.state) for name, x in s.items()}
