"""An entry that waits before it is sent must not lose the momentum it would have gathered meanwhile.

Lecture section: gradient compression; handling momentum. Lesson: 10_gradient_compression. Source: deep
gradient compression (DGC), Lin, Han, Mao, Wang and Dally 2018, arXiv 1712.01887.
"""

from __future__ import annotations

from minigrad.device import Array, array_module

from ..flat import FlatLayout
from .sparsification import Sparsifier, check_density, count_of, largest_by_sample


class DeepGradientCompression(Sparsifier):
    """Top-k with momentum that is applied before the selection; the optimizer must be plain SGD.

    k = max(1, round(density n)) of all n entries, chosen with the help of a ``sample``. With ``apart`` each
    parameter sends that share of its own entries, as in the paper, whose tensors are large; in a small net
    the last layers, whose gradients are large, then send too little. ``nesterov`` has u = momentum (u + g)
    and v = e + u + g. ``clip`` limits the norm of a rank's own gradient to clip p^-1/2, so that the sum of p
    independent ones is about ``clip``. During the first ``warm_up`` steps the density is 1/4, 1/16, 1/64,
    1/256 for a quarter of them each (sparsity 75 % to 99.6 %), never below ``density``.

    Density 1 is plain SGD without momentum if ``masking`` is on, as it resets every velocity, and SGD with
    momentum if it is off.
    """

    def __init__(
        self,
        *,
        density: float = 0.001,
        momentum: float = 0.9,
        nesterov: bool = False,
        masking: bool = True,
        apart: bool = False,
        clip: float | None = None,
        warm_up: int = 0,
        sample: float = 0.01,
    ):
        if not 0 < momentum < 1:
            raise ValueError(f"momentum must lie between 0 and 1, got {momentum}; without it use top-k")
        if clip is not None and not clip > 0:
            raise ValueError(f"gradients can be clipped to a norm above 0, got {clip}")
        if warm_up < 0:
            raise ValueError(f"warm_up is a number of steps, at least 0, got {warm_up}")
        if not 0 < sample <= 1:
            raise ValueError(f"sample is a share of the entries, above 0 and at most 1, got {sample}")
        self.density, self.momentum, self.nesterov = check_density(density), momentum, nesterov
        self.masking, self.apart = masking, apart
        self.clip, self.warm_up, self.sample = clip, warm_up, sample

    own_state = ("steps", "velocity")

    def start(self, layout: FlatLayout, rank: int, size: int) -> None:
        super().start(layout, rank, size)
        self.steps, self.velocity = 0, layout.zeros()

    def apply_feedback(self, error: Array | None, g: Array) -> Array:
        if self.clip is not None:
            limit, norm = self.clip * self.size**-0.5, float(array_module(g).linalg.norm(g))
            g = g * (limit / norm) if norm > limit else g
        if self.nesterov:
            self.next_velocity = self.momentum * (self.velocity + g)
            v = self.next_velocity + g
        else:
            self.next_velocity = self.momentum * self.velocity + g
            v = self.next_velocity
        return v if error is None else error + v

    def density_at(self, step: int) -> float:
        """1/4 to 1/256 for a quarter of the first ``warm_up`` steps each, and at least ``density``."""
        if step >= self.warm_up:
            return self.density
        return max(self.density, 0.25 ** (1 + 4 * step // self.warm_up))

    def choose(self, v: Array) -> Array:
        density = self.density_at(self.steps)
        if not self.apart:
            return largest_by_sample(v, count_of(density, v.size), self.sample)
        parts = [x.reshape(-1) for x in self.layout.views(v)]
        choices = [largest_by_sample(x, count_of(density, x.size), self.sample) for x in parts]
        starts = zip(self.layout.starts, choices, strict=False)
        return array_module(v).concatenate([start + indices for start, indices in starts])

    def commit(self) -> None:
        self.velocity = self.next_velocity
        if self.masking:
            self.velocity[self.sent_indices] = 0
        self.steps += 1
