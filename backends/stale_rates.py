"""The factor of the learning rate for an update by stale gradients.

Lecture section: asynchronous parameter server. Lesson: 08_parameter_server.

Each of W workers has 1 / W of every batch, and an asynchronous server updates W times where one machine
updates once. With the serial rate lr, two things go wrong:

- The updates for one batch move the parameters W times as far. So an update by a ``share`` s of a batch
  (c / W if it is the mean of c gradients) uses s lr: linear scaling (Goyal et al. 2017; lesson 07). An
  adaptive optimizer divides by the size of the gradients, and uses sqrt(s) lr (Malladi et al. 2022).
- A gradient of staleness tau is s tau batches old, and late gradients can make the parameters oscillate. On
  the loss h w^2 / 2, SGD with momentum m converges if lr h < 2 (1 + m) for tau = 0, but only if
  lr h < 1 - m for tau = 1: for m = 0.9 this is 38 times less. Asynchrony acts like more momentum
  (Mitliagkas et al. 2016), so the optimizer should use less of it (Hadjis et al. 2016). What decides is the
  delay times lr / (1 - m), and only lr is a setting of every optimizer. Zhang et al. 2016 divide lr by tau,
  which for two workers (tau = 1) changes nothing. Here the delay is counted in batches, and 1 is added so
  that a fresh gradient keeps its rate: the divisor is 1 + s tau.

Together the factor is s / (1 + s tau). For a single gradient (s = 1 / W) it is 1 / (W + tau): lr / (2 W - 1)
for W equally fast workers, whose gradients have the staleness W - 1. With one worker, and in synchronous
training (s = 1, tau = 0), the rate stays lr. The factor applies to the whole update, with momentum also to
the older gradients in it. The price is slower progress: for one batch the parameters move a half to two
thirds as far as serially, so a rate that is small for the number of steps becomes too small.
"""

from __future__ import annotations

from collections.abc import Callable

from minigrad.lookup import lookup

Factor = Callable[[int, float, bool], float]


def damped(staleness: int, share: float, adaptive: bool) -> float:
    """s / (1 + s tau) for an update by a ``share`` s of a batch; sqrt(s) / (1 + s tau) if ``adaptive``."""
    return (share**0.5 if adaptive else share) / (1 + share * staleness)


def divided(staleness: int, share: float, adaptive: bool) -> float:
    """1 / tau where tau is above 0, whatever the share (Zhang et al. 2016)."""
    return 1 / max(staleness, 1)


def naive(staleness: int, share: float, adaptive: bool) -> float:
    """1: the rate of the serial run, which shows what staleness does."""
    return 1.0


STALE_RATES: dict[str, Factor] = {"damped": damped, "divided": divided, "naive": naive}


def find_stale_rate(name: str) -> Factor:
    """The rule called ``name``; raises ValueError naming the choices."""
    return lookup("stale_rate", name, STALE_RATES)
