"""How far a stale gradient moves the parameters: the learning rate of a parameter server's update.

Lecture section: asynchronous parameter server. Lesson: 08_parameter_server.

Each of W workers has a W-th of every batch, and an asynchronous server updates W times where one machine
does once. At that machine's rate lr two things go wrong:

- For the same samples the parameters move W times as far. So an update by a ``share`` s of a batch, c / W
  where it is the mean of c gradients, is worth s lr: linear scaling (Goyal et al. 2017; lesson 07).
- A gradient of staleness tau comes s tau batches late, and what comes late can swing. On h w^2 / 2, SGD with
  momentum m converges for lr h < 2 (1 + m) at tau = 0, but at tau = 1 for lr h < 1 - m only: with m = 0.9
  for a 38th. For asynchrony is a momentum, too (Mitliagkas et al. 2016), which the optimizer's is to make
  room for (Hadjis et al. 2016). What counts is the product of delay and lr / (1 - m); of these the rate is
  what all optimizers have. Zhang et al. 2016 divide it by tau, which is 1 for two workers and changes nothing;
  counted in batches, and from 1 on, the divisor is 1 + s tau.

Both together make lr s / (1 + s tau), or lr / (W + tau) for a single gradient: lr / (2 W - 1) with W equal
workers, whose gradients are stale by W - 1. One worker, and synchronous training (s = 1, tau = 0), keep lr.
The rate is that of the whole update: with momentum also of the older gradients that are in it.
"""

from __future__ import annotations

from collections.abc import Callable

Factor = Callable[[int, float], float]


def damped(staleness: int, share: float) -> float:
    """s / (1 + s tau), for a gradient in an update by a ``share`` s of a batch."""
    return share / (1 + share * staleness)


def divided(staleness: int, share: float) -> float:
    """1 / tau where tau is above 0, whatever the share (Zhang et al. 2016)."""
    return 1 / max(staleness, 1)


def naive(staleness: int, share: float) -> float:
    """1: every gradient counts as if nothing were stale, to see what goes wrong."""
    return 1.0


STALE_RATES: dict[str, Factor] = {"damped": damped, "divided": divided, "naive": naive}


def find_stale_rate(name: str) -> Factor:
    """By what the learning rate is multiplied; raises ValueError naming the choices."""
    if name not in STALE_RATES:
        raise ValueError(f"unknown stale_rate {name!r}; choose one of {', '.join(STALE_RATES)}")
    return STALE_RATES[name]
