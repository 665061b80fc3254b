"""The law of optimizers turns red on an update with one thing wrong."""

from typing import Any

import numpy as np
import pytest

from minigrad import optim
from minigrad.optim import Part
from tests.bugs.mutant import mutant
from tests.minigrad.optim_laws import (
    CLIPPED,
    adagrad,
    adam,
    adamw,
    clipping_comes_before_the_recurrence,
    clipping_keeps_the_direction,
    follows_recurrence,
    is_sgd_at_any_rates,
    lars_follows_the_paper,
    lars_of_all,
    rmsprop,
    sgd,
)


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
RMSPROP = {"lr": 0.1, "alpha": 0.9, "eps": 1e-3, "momentum": 0.5, "centered": True, "weight_decay": 0.2}
ADAM = {"lr": 0.1, "betas": (0.9, 0.99), "eps": 1e-3, "weight_decay": 0.2}
BUGS = {
    "decay beside momentum": (DecayAfterMomentum, sgd, MOMENTUM),
    "the rate inside momentum": (VelocityHoldsTheRate, sgd, MOMENTUM),
    "a changed gradient": (WritesIntoTheGradient, sgd, PLAIN),
    "a new array": (Replaces, sgd, PLAIN),
    "squares not summed": (broken("s += g * g\n", "s[...] = g * g\n").Adagrad, adagrad, ADAGRAD),
    "the mean's square is not taken away": (
        broken("s - m * m, 0)", "s, 0)").RMSprop, rmsprop, RMSPROP,
    ),
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
        follows_recurrence(
            lambda parameters: make(parameters, **settings),
            lambda w, gs: recurrence(w, gs, **settings),
            rng.normal(size=3),
            list(rng.normal(size=(4, 3))),
        )


HEAVY_BALLS = {
    "the correction upside down": ('self.lr / state["lr"]', 'state["lr"] / self.lr'),
    "the rate before is that of the first step": ('state["lr"] = self.lr\n', "pass\n"),
    "the correction on the gradient": (
        "v += rate * d\n            some_w -= v",
        "v += rate * d * momentum\n            some_w -= v",
    ),
    "no correction": ("if self.corrected and", "if not self.corrected and"),
}


@pytest.mark.parametrize("bug", HEAVY_BALLS)
def test_the_law_of_heavy_ball_catches(bug):
    with pytest.raises(AssertionError):
        is_sgd_at_any_rates(broken(*HEAVY_BALLS[bug]).HeavyBall, rates=[1.0, 0.5, 0.1, 0.2], momentum=0.9)


RATES = {
    "the norm of the gradient alone": ("g + decay * w, 1)", "g, 1)"),
    "norms not rooted": ("np.sqrt(squares).T", "squares.T"),
    "the decay by |g|": ("g + decay * w, 1)", "g + decay * g, 1)"),
    "norms exchanged": ("w, g = np.sqrt", "g, w = np.sqrt"),
    "trust where |w| is 0": ("trust * w / below, 1)", "trust * w / below, trust)"),
    "one norm for all": ("w, g = np.sqrt(squares).T", "w, g = np.sqrt(squares + squares.sum(0)).T"),
}


@pytest.mark.parametrize("bug", RATES)
def test_the_law_of_lars_catches(bug):
    with pytest.raises(AssertionError):
        lars_follows_the_paper(broken(*RATES[bug]).LARS)


class RateOnTheWholeVelocity(optim.LARS):
    """v <- momentum v + g; w <- w - r v: r changes at every step, so this is another method."""

    def update(self, w, g, state, rate, momentum):
        v = state.setdefault("v", np.zeros_like(w))
        v *= self.momentum
        v += g + self.weight_decay * w
        w -= rate * v


def test_the_law_of_lars_catches_a_rate_outside_the_velocity():
    with pytest.raises(AssertionError):
        lars_follows_the_paper(RateOnTheWholeVelocity)


def reached(parts) -> list[tuple[int, Any]]:
    return [(n, g) for n, _, g in parts if g is not None]


class ClipsEachParameter(optim.SGD):
    def clip(self, parts, squares):
        for n, g in reached(parts):
            g *= min(1.0, self.limit / np.sqrt(squares[n, 1]))
        return parts


class ClipsElements(optim.SGD):
    def clip(self, parts, squares):
        for _, g in reached(parts):
            np.clip(g, -0.1, 0.1, out=g)
        return parts


class ClipsTheSquare(optim.SGD):
    def clip(self, parts, squares):
        return super().clip(parts, np.sqrt(squares))


class ClipsAlways(optim.SGD):
    def clip(self, parts, squares):
        for _, g in reached(parts):
            g *= self.limit / np.sqrt(squares[:, 1].sum())
        return parts


class ClipsTheUpdateOnly(optim.SGD):
    """Leaves the gradients as they were."""

    def clip(self, parts, squares):
        return super().clip([Part(n, w, np.array(g)) for n, w, g in parts], squares)


@pytest.mark.parametrize(
    "bug", [ClipsEachParameter, ClipsElements, ClipsTheSquare, ClipsAlways, ClipsTheUpdateOnly]
)
def test_the_law_of_clipping_catches(bug):
    with pytest.raises(AssertionError):
        clipping_keeps_the_direction(bug, 0.5)
        clipping_keeps_the_direction(bug, 50.0)


CLIPPED_LARS = {
    "the norm from before the clipping": ("            squares[:, 1] *= (self.limit / norm) ** 2\n", ""),
    "the norm is clipped, not its square": ("(self.limit / norm) ** 2", "(self.limit / norm)"),
    "the rates come first": (
        "            parts = self.clip(parts, squares)\n            rates = self.rates(squares)\n",
        "            rates = self.rates(squares)\n            parts = self.clip(parts, squares)\n",
    ),
    "no parameter is clipped": ("part.g[...] *= self.limit / norm", "pass"),
}


@pytest.mark.parametrize("bug", CLIPPED_LARS)
def test_the_law_of_clipped_optimizers_catches(bug):
    settings = {"lr": 0.5, "momentum": 0.5, "weight_decay": 0.1, "trust": 0.2}
    clipping_comes_before_the_recurrence(optim.LARS, lars_of_all, 1.0, 0, **settings)
    with pytest.raises(AssertionError):
        clipping_comes_before_the_recurrence(broken(*CLIPPED_LARS[bug]).LARS, lars_of_all, 1.0, 0, **settings)


@pytest.mark.parametrize("name", ["plain", "Adam"])
def test_the_law_of_clipped_optimizers_catches_a_clipping_that_is_undone(name):
    settings = {"plain": PLAIN, "Adam": ADAM}[name]
    make, recurrence, _ = CLIPPED[name]
    unclipped = broken("part.g[...] *= self.limit / norm", "pass")
    with pytest.raises(AssertionError):
        law = clipping_comes_before_the_recurrence
        law(getattr(unclipped, make.__name__), recurrence, 1.0, 0, **settings)
