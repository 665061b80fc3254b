"""The laws of training in sixteen bits: masters of float32, gradients to some roundings, one loss scale."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from minigrad import nn, optim
from minigrad.bfloat16 import bfloat16, rounded
from minigrad.data import Batch
from minigrad.device import Array, to_device, to_host
from minigrad.loss_scale import DynamicScale, StaticScale
from minigrad.module import Module
from minigrad.nn.pool import MaxPool
from minigrad.serial import Serial
from minigrad.testing import DEVICE
from minigrad.weighted_mean import WeightedMean
from minigrad.work import Loss

from .comm.collectives import allgather
from .comm.communicator import Communicator
from .laws import (
    Build,
    Difference,
    MakeOptimizer,
    MakeStrategy,
    distances,
    drawn_order,
    largest_of_ranks,
    norm_of,
    parameters_in,
    placed,
)

LARGEST = 65536.0  # float16 rounds numbers from 65,520 to infinity
UNITS = {"float16": 2.0**-11, "bfloat16": 2.0**-8}
"""The unit of roundoff: the largest relative error of a number that is rounded once."""
CHOICES = (nn.ReLU, nn.LeakyReLU, MaxPool, nn.Experts)  # layers whose gradients jump
STEPS = (False, False, True, False)
"""Which steps of a proof get a gradient that overflows."""


class PrecisionComparison(NamedTuple):
    """What is equal to serial runs: ``differences`` on rank 0, the ``rule`` that the loss scale must follow.

    ``bound`` is what rounding may make of the relative differences, which are those of a gradient's norm.
    """

    differences: list[Difference]
    rule: ScaleRule
    bound: float


def bound_of(model: Module, precision: str, sums: int) -> float:
    """The largest relative difference of two right gradients of ``model``, that of their norm.

    A number is rounded to 16 bits n times on its way to a gradient: each layer rounds its value, and in
    backward the gradient of its input; a gradient is the sum of ``sums`` parts, one for each rank and
    micro-batch, and each addition is rounded. Two runs that add up in other orders differ by at most u in
    each rounding, up or down, and not all in one direction: n independent errors of one size add up to about
    sqrt(n) times it, and rarely to more than 4 times that. This bound, 4 sqrt(n) u, is for smooth layers.

    A ReLU, a maximum or a gate chooses by its input, and a share of about sqrt(n) u of the inputs are so near
    to the other choice that the two runs choose differently. A gradient then lacks these terms, or has them
    in another place: a share s of a sum's terms is sqrt(s) of its norm. So the bound is 3 sqrt(sqrt(n) u).

    A run without a part of a sum is off by about a half. That sums are exact is proved in float64.
    """
    layers = [module for module in model.modules() if not module.children()]
    error = UNITS[precision] * math.sqrt(2 * len(layers) + sums)
    chooses = any(isinstance(module, CHOICES) for module in model.modules())
    return 3 * math.sqrt(error) if chooses else 4 * error


def differences_in_precision(
    strategy: MakeStrategy,
    comm: Communicator,
    build: Build,
    loss_fn: Loss,
    batch: Batch,
    *,
    precision: str = "float16",
    scale: Callable[[], StaticScale | None] = lambda: None,
    steps: Sequence[bool] = STEPS,
    device: str = DEVICE,
    seed: int = 0,
    optimizer: MakeOptimizer = lambda parameters: optim.Adam(parameters, 0.001),
    micros: int = 1,
) -> PrecisionComparison:
    """Train on ``batch`` by ``strategy`` in 16 bits; compare each step with two serial runs on every rank.

    The gradients and the loss are compared with those of a serial step in 16 bits, from the same parameters
    and with ``micros`` micro-batches. The gradients of the strategy are then given, divided by the loss
    scale, to an ``optimizer`` of float32 parameters that knows nothing of 16 bits: its parameters must be the
    strategy's masters bit by bit, and rounded the strategy's parameters. Where ``steps`` says so,
    the loss has a factor with which gradients overflow: nothing may change then, but for the scale. Another
    step that overflows is taken again.

    Collective; rank 0 gets a difference for each parameter, whose ``absolute`` is of the gradient's elements,
    ``relative`` of its norm (``laws.distances``), and ``unequal`` the number of elements of the parameter and
    its master, in all steps, without the bits of the float32 run, on the rank that has most of them. Then for
    "loss", and for "loss scale", whose ``unequal`` counts the steps after which a rank had another scale or
    another count of steps left out.
    Raises ValueError where gradients overflow with a scale that stays the same.
    """
    backend, model, reference = placed(strategy, comm, build, precision, device, seed, build)
    batch = batch.to(device)
    serial = Serial(micros)
    order = drawn_order(reference, seed, 0)
    method = optimizer(parameters_in(order, model)).with_master_weights(precision, scale())
    assert method.master_weights is not None
    masters = build(np.random.default_rng(seed)).to(dtype=np.float32, device=device)
    copies = masters.named_parameters()
    for name, parameter in reference.named_parameters().items():
        copies[name].data[...] = parameter.data
    plain = optimizer(parameters_in(order, masters))
    rule = ScaleRule(method.loss_scale, grows=isinstance(method.master_weights.scale, DynamicScale))
    rows = {name: np.zeros(3) for name in [*copies.keys(), "loss", "loss scale"]}

    def overflowing_loss() -> Loss:
        """A loss whose largest gradients overflow in the next step, and on most ranks no other ones."""
        alone = Serial(micros)  # the steps of ``serial`` go on
        alone.count_steps_from(serial.step_number)
        reference.zero_grad()
        alone.step(reference, batch, loss_fn, loss_scale=method.loss_scale)
        gradients = [p.grad for p in reference.parameters() if p.grad is not None]
        return multiplied(loss_fn, overflowing_factor(gradients, precision))

    def take_step(planted: bool) -> bool:
        """One step of all three runs; whether its gradients were finite, on all ranks."""
        loss_scale = method.loss_scale
        loss = overflowing_loss() if planted else loss_fn
        model.zero_grad()
        reference.zero_grad()
        runs = (serial, reference), (backend, model)
        losses = [np.array(run.step(trained, batch, loss, loss_scale=loss_scale)) for run, trained in runs]
        expected, actual = (unscaled(run.state.full_gradients(trained), loss_scale) for run, trained in runs)
        finite, finite_serially = (
            all(np.isfinite(g).all() for g in gradients.values() if g is not None)
            for gradients in (actual, expected)
        )
        if not planted and finite and finite_serially:
            differences = distances(expected, actual, size=norm_of)
            differences |= distances({"loss": losses[0]}, {"loss": losses[1]}, size=norm_of)
            for name, pair in differences.items():
                rows[name][:2] = np.maximum(rows[name][:2], pair)
        backend.update(model, method)
        if finite:
            for name, g in actual.items():
                copies[name].grad = None if g is None else to_device(g.copy(), device)
            plain.step()
        rule.count(finite)
        of_model = backend.state.full_parameters(model)
        of_state = backend.state.full_optimizer_state(model, method, "master")
        for name, parameter in reference.named_parameters().items():
            master = copies[name].data
            parameter.data[...] = rounded(master) if precision == "bfloat16" else master.astype(np.float16)
            rows[name][2] += unequal(parameter.data, of_model[name])
            if of_state.get(name) is not None:
                rows[name][2] += unequal(master, of_state[name])
            elif copies[name].grad is not None:
                rows[name][2] += master.size  # a step was taken, and there is no master
        rows["loss scale"][2] += (method.loss_scale, method.skipped_steps) != (rule.value, rule.skipped)
        return bool(np.all(allgather(comm, np.array([finite]))))

    with bfloat16(precision == "bfloat16"), np.errstate(over="ignore", invalid="ignore"):
        for planted in steps:
            finite = take_step(planted)
            while not planted and not finite:
                if not rule.grows:
                    raise ValueError(
                        f"gradients overflow with a loss scale of {rule.value:,.10g}; take a smaller one, as "
                        f"--loss-scale {rule.value / 256:.10g}"
                    )
                finite = take_step(False)
            rows["loss scale"][2] += planted and finite  # nothing overflowed
    backend.finalize(model)
    backend.close()
    bound = bound_of(reference, precision, comm.size * micros)
    return PrecisionComparison(largest_of_ranks(comm, rows, copies), rule, bound)


def trains_in_sixteen_bits(
    strategy: MakeStrategy, comm: Communicator, build: Build, loss_fn: Loss, batch: Batch, **settings: Any
) -> None:
    """Assert on rank 0 what ``differences_in_precision`` compares, within its bound."""
    comparison = differences_in_precision(strategy, comm, build, loss_fn, batch, **settings)
    bound = comparison.bound
    wrong = [d for d in comparison.differences if d.unequal or not d.relative <= bound]
    assert not wrong, "\n".join(
        f"{d.name} {d.shape} differs by {d.relative:.1e} of its norm on rank {d.worst_rank}, allowed "
        f"{bound:.1e}, and {d.unequal} elements of masters, parameters or the scale are not equal"
        for d in wrong
    )


class ScaleRule:
    """A loss scale as one writes it down: halved at an overflow, doubled after 2,000 steps without one.

    ``value`` is that after all ``steps``, of which some were ``skipped``.
    """

    def __init__(self, value: float, *, grows: bool):
        self.value, self.grows = value, grows
        self.good = self.skipped = self.steps = 0

    def count(self, finite: bool) -> None:
        """Count a step whose gradients were ``finite`` or not."""
        self.steps += 1
        self.good, self.skipped = (self.good + 1, self.skipped) if finite else (0, self.skipped + 1)
        if self.grows:
            self.value *= 0.5 if not finite else 2 if self.good and self.good % 2000 == 0 else 1


def overflowing_factor(gradients: Sequence[Array], precision: str) -> float:
    """A factor with which the largest of these gradients, and those above 4/5 of it, overflow.

    A factor of bfloat16 is infinite: it has no more range than the gradients.
    """
    largest = max((float(abs(g).max()) for g in gradients if g.size), default=0.0)
    if precision == "bfloat16" or not 0 < largest < LARGEST:
        return math.inf
    return 1.25 * LARGEST / largest


def multiplied(loss_fn: Loss, factor: float) -> Loss:
    """The loss times ``factor``."""
    if isinstance(loss_fn, WeightedMean):
        return WeightedMean(lambda out, y: loss_fn.total(out, y) * factor, loss_fn.divisor)
    return lambda out, y: loss_fn(out, y) * factor


def unscaled(gradients: dict[str, Any], scale: float) -> dict[str, Any]:
    """The gradients of the loss itself, in float32."""
    return {
        name: None if g is None else g.astype(np.float32) / np.float32(scale) for name, g in gradients.items()
    }


def unequal(x: Array, y: Array) -> int:
    """How many elements of two arrays have other bits."""
    x, y = to_host(x), to_host(y)
    if x.shape != y.shape or x.dtype != y.dtype:
        return max(x.size, 1)
    bits = np.dtype(f"u{x.itemsize}")
    return int((np.ascontiguousarray(x).view(bits) != np.ascontiguousarray(y).view(bits)).sum())
