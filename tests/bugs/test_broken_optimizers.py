"""The law of optimizers turns red on an update with one thing wrong."""

import numpy as np
import pytest

from minigrad import optim, testing
from tests.bugs.mutant import mutant
from tests.minigrad.test_optim import adagrad, adam, adamw, sgd


class DecayAfterMomentum(optim.SGD):
    """Decays the weights beside the velocity instead of inside it."""

    def update(self, w, g, state, rate):
        v = state.setdefault("v", np.zeros_like(w))
        v *= self.momentum
        v += g
        w -= self.lr * (v + self.weight_decay * w)


class VelocityHoldsTheRate(optim.SGD):
    """v <- momentum v + lr g: the same until something else enters v."""

    def update(self, w, g, state, rate):
        v = state.setdefault("v", np.zeros_like(w))
        v *= self.momentum
        v += self.lr * self.lr * (g + self.weight_decay * w)
        w -= v


class WritesIntoTheGradient(optim.SGD):
    def update(self, w, g, state, rate):
        g += self.weight_decay * w
        w -= self.lr * g


class Replaces(optim.SGD):
    def step(self, parts=None, total=np.asarray):
        for p in self.parameters:
            assert p.grad is not None
            p.data = p.data - self.lr * (p.grad + self.weight_decay * p.data)


def broken(*change):
    return mutant("minigrad.optim", change)


MOMENTUM = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.2}
PLAIN = {"lr": 0.1, "weight_decay": 0.2}
ADAGRAD = {"lr": 0.1, "eps": 1e-3, "weight_decay": 0.2}
ADAM = {"lr": 0.1, "betas": (0.9, 0.99), "eps": 1e-3, "weight_decay": 0.2}
BUGS = {
    "decay beside momentum": (DecayAfterMomentum, sgd, MOMENTUM),
    "the rate inside momentum": (VelocityHoldsTheRate, sgd, MOMENTUM),
    "a changed gradient": (WritesIntoTheGradient, sgd, PLAIN),
    "a new array": (Replaces, sgd, PLAIN),
    "squares not summed": (broken("s += g * g\n", "s[...] = g * g\n").Adagrad, adagrad, ADAGRAD),
    "no correction of the mean": (broken("rate / (1 - b1**t)", "rate").Adam, adam, ADAM),
    "steps counted from 0": (broken("t=0)", "t=1)").Adam, adam, ADAM),
    "AdamW's decay coupled": (broken("decoupled = True", "decoupled = False").AdamW, adamw, ADAM),
    "AdamW's decay without the rate": (
        broken("1 - rate * self.weight_decay", "1 - self.weight_decay").AdamW, adamw, ADAM,
    ),
}  # fmt: skip


@pytest.mark.parametrize("bug", BUGS)
def test_the_recurrence_catches(bug):
    make, recurrence, settings = BUGS[bug]
    rng = np.random.default_rng(0)
    with pytest.raises(AssertionError):
        testing.follows_recurrence(
            lambda parameters: make(parameters, **settings),
            lambda w, gs: recurrence(w, gs, **settings),
            rng.normal(size=3),
            list(rng.normal(size=(4, 3))),
        )
