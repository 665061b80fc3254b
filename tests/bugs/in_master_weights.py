"""Bugs of master weights and of the scale of the loss."""

from __future__ import annotations

import numpy as np

from minigrad import nn, optim
from minigrad.data import Batch
from minigrad.loss_scale import DynamicScale
from minigrad.train import fit
from tests.bugs.bug import Bug
from tests.minigrad.master_weights_laws import KINDS, masters_are_a_float32_run, scales

# Laws

SHAPES = [(3, 2), (), (4,)]
OVERFLOWS = [False, True, False, False, True, True, False, False, False]


def a_scale_is_halved_and_doubled() -> None:
    scales(DynamicScale(2.0**16, growth_interval=3), [*[False] * 7, True, False, True, True, *[False] * 9], 3)


def masters_follow() -> None:
    for kind in KINDS.values():
        masters_are_a_float32_run(kind, SHAPES, OVERFLOWS)
    masters_are_a_float32_run(KINDS["adam"], SHAPES, OVERFLOWS, "bfloat16")


def steps_left_out_count_in_no_schedule() -> None:
    model = nn.Sequential(nn.Linear(6, 4, rng=np.random.default_rng(0)))
    model.to(dtype="float16")
    optimizer = optim.Adam(model.parameters(), 0.01).with_master_weights(scale=DynamicScale(2.0**22))
    rng, rates = np.random.default_rng(1), []
    batch = Batch(rng.normal(size=(12, 6)).astype(np.float16), rng.integers(0, 4, 12))
    history = fit(
        model, optimizer, nn.CrossEntropyLoss(), batch, epochs=20, schedule=lambda t: rates.append(t) or 0.01
    )
    skipped = optimizer.skipped_steps
    assert 0 < skipped < 10, f"{skipped} steps were left out"
    assert rates == [0] * skipped + list(range(20 - skipped)), "the schedule counts steps left out"
    assert optimizer.state[0]["t"] == 20 - skipped, "Adam counts steps left out"
    assert 0.5 < history.losses[0] < 3, "the loss is reported with its scale"


# Bugs

BUGS = (
    Bug("a scale grows one step late", "DynamicScale.take_step",
        "self.good_steps == self.growth_interval", "self.good_steps > self.growth_interval",
        a_scale_is_halved_and_doubled, "assert"),
    Bug("good steps are counted on after the scale has grown", "DynamicScale.take_step",
        "self.good_steps = 0", "pass", a_scale_is_halved_and_doubled, "assert"),
    Bug("an overflow does not end a row of good steps", "StaticScale.skip_step",
        "self.good_steps = 0", "pass", a_scale_is_halved_and_doubled, "assert"),
    Bug("steps left out are not counted", "StaticScale.skip_step", "self.skipped += 1", "pass",
        a_scale_is_halved_and_doubled, "assert"),
    Bug("masters have the gradients of the scaled loss", "MasterWeights.unscaled",
        "d /= np.float32(self.scale.value)", "pass", masters_follow, "differ from the float32 run"),
    Bug("the parameters are their own masters", "MasterWeights.copy",
        'state["master"] if "master" in state else w.astype(np.float32)', "w.astype(np.float32)",
        masters_follow, "differ from the float32 run"),
    Bug("masters have 16 bits", "MasterWeights.copy", "w.astype(np.float32)", "w.copy()",
        masters_follow, "differ from the float32 run"),
    Bug("a parameter is not rounded from its master", "MasterWeights.step",
        'part.w[...] = rounded(copy.w) if self.precision == "bfloat16" else copy.w', "pass",
        masters_follow, "not rounded once"),
    Bug("a bfloat16 parameter is its master", "MasterWeights.step",
        'rounded(copy.w) if self.precision == "bfloat16" else copy.w', "copy.w",
        masters_follow, "not rounded once"),
    Bug("an infinite gradient is used", "MasterWeights.step",
        "if not finite:", "if False:",
        masters_follow, "a step was taken"),
    Bug("the first parameter alone says whether gradients are finite", "MasterWeights.step",
        "np.isfinite(total(optimizer.squares(copies))).all()",
        "np.isfinite(total(optimizer.squares(copies))[0]).all()", masters_follow, "a step was taken"),
    Bug("the optimizer sees the gradients in 16 bits", "MasterWeights.unscaled",
        "g.astype(np.float32)", "g.copy()", masters_follow, "differ from the float32 run"),
    Bug("the schedule counts steps that are left out", "fit",
        "schedule(step - optimizer.skipped_steps)", "schedule(step)",
        steps_left_out_count_in_no_schedule, "the schedule counts"),
    Bug("backward starts from the loss without its scale", "Work.seed",
        "self.loss_weight * self.loss_scale", "self.loss_weight",
        steps_left_out_count_in_no_schedule, "were left out"),
)  # fmt: skip
