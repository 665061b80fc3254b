"""How far a stale gradient moves the parameters: by what an update's learning rate is multiplied.

Lecture section: asynchronous parameter server. Lesson: 08_parameter_server.

Each of W workers has a W-th of every batch, and an asynchronous server updates W times where one machine
does once. At that machine's rate lr two things go wrong:

- For the same samples the parameters move W times as far. So an update by a ``share`` s of a batch, c / W
  where it is the mean of c gradients, is worth s lr: linear scaling (Goyal et al. 2017; lesson 07). Of an
  adaptive optimizer, which divides by the gradient's own size, it is sqrt(s) lr (Malladi et al. 2022).
- A gradient of staleness tau comes s tau batches late, and what comes late can swing. On h w^2 / 2, SGD with
  momentum m converges for lr h < 2 (1 + m) if tau = 0, but for lr h < 1 - m if tau = 1: with m = 0.9 that is
  a 38th. For asynchrony acts as a momentum itself (Mitliagkas et al. 2016), for which the optimizer's must
  make room (Hadjis et al. 2016). What counts is the delay times lr / (1 - m), and of that only the rate is in
  all optimizers. Zhang et al. 2016 divide it by tau: with two workers by 1, which changes nothing. Counted
  in batches, and so that a fresh gradient counts whole, the divisor is 1 + s tau.

Both together are s / (1 + s tau). For a single gradient that makes lr / (W + tau): lr / (2 W - 1) with W
equal workers, whose gradients are stale by W - 1. One worker, and synchronous training (s = 1, tau = 0), keep
lr.
The rate is that of the whole update: with momentum also of the older gradients that are in it. The price is
progress: where lr is too small for the number of steps, between a half and two thirds of it is smaller still.
"""

from __future__ import annotations

from collections.abc import Callable

from minigrad.lookup import lookup

Factor = Callable[[int, float, bool], float]


def damped(staleness: int, share: float, adaptive: bool) -> float:
    """s / (1 + s tau) for an update by a ``share`` s of a batch; with sqrt(s) on top if ``adaptive``."""
    return (share**0.5 if adaptive else share) / (1 + share * staleness)


def divided(staleness: int, share: float, adaptive: bool) -> float:
    """1 / tau where tau is above 0, whatever the share (Zhang et al. 2016)."""
    return 1 / max(staleness, 1)


def naive(staleness: int, share: float, adaptive: bool) -> float:
    """1: every gradient counts as if nothing were stale, to see what goes wrong."""
    return 1.0


STALE_RATES: dict[str, Factor] = {"damped": damped, "divided": divided, "naive": naive}


def find_stale_rate(name: str) -> Factor:
    """By what the learning rate is multiplied; raises ValueError naming the choices."""
    return lookup("stale_rate", name, STALE_RATES)
