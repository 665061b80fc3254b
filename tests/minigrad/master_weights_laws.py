"""Laws of minigrad/master_weights.py: a run in float32; of minigrad/loss_scale.py: five lines of Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from minigrad import optim
from minigrad.bfloat16 import rounded
from minigrad.loss_scale import DynamicScale, StaticScale
from minigrad.optim import Optimizer
from minigrad.tensor import Parameter

Kind = Callable[[list[Parameter]], Optimizer]
KINDS: dict[str, Kind] = {
    "sgd": lambda p: optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.01),
    "heavy ball": lambda p: optim.HeavyBall(p, 0.1),
    "lars": lambda p: optim.LARS(p, 0.1),
    "adagrad": lambda p: optim.Adagrad(p, 0.1),
    "rmsprop": lambda p: optim.RMSprop(p, 0.01),
    "adam": lambda p: optim.Adam(p, 0.01, amsgrad=True),
    "adamw in groups": lambda p: optim.AdamW(optim.decay_groups(p, 0.1), 0.01),
    "clipped": lambda p: optim.SGD(p, 0.1).clipped(0.5),
}


def scales(scale: StaticScale, overflows: Sequence[bool], interval: int) -> None:
    """The factor is halved at each overflow, and doubled after so many steps without one."""
    value, good, skipped = scale.value, 0, 0
    for overflow in overflows:
        scale.skip_step() if overflow else scale.take_step()
        good = 0 if overflow else good + 1
        skipped += overflow
        grows = good == interval
        value, good = (value / 2 if overflow else value * 2 if grows else value), 0 if grows else good
        assert (scale.value, scale.good_steps, scale.skipped) == (value, good, skipped)


def masters_are_a_float32_run(
    kind: Kind, shapes: Sequence[tuple[int, ...]], overflows: Sequence[bool], precision: str = "float16"
) -> None:
    """After each step the copies are, bit by bit, the weights of a float32 run on the same gradients.

    Parameters are the copies, rounded once. Steps with an infinite gradient change nothing but the scale.
    """
    rng, dtype = np.random.default_rng(0), np.float16 if precision == "float16" else np.float32
    to_16 = (lambda x: x.astype(np.float16)) if precision == "float16" else rounded
    start = [to_16(np.asarray(rng.normal(size=shape), np.float32)) for shape in shapes]
    parameters, masters = [Parameter(w) for w in start], [Parameter(w.astype(np.float32)) for w in start]
    optimizer = kind(parameters).with_master_weights(precision, DynamicScale(2.0**8, growth_interval=2))
    serial = kind(masters)
    for overflow in overflows:
        scale = optimizer.loss_scale
        before = [[p.data.copy() for p in parameters], state_arrays(optimizer)]
        for i, (p, master) in enumerate(zip(parameters, masters, strict=True)):
            g = to_16(np.asarray(rng.normal(size=p.shape), np.float32) * np.float32(scale))
            p.grad, master.grad = np.array(g), np.array(g.astype(np.float32) / np.float32(scale))
            if overflow and i == len(parameters) - 1:
                p.grad = np.full(p.shape, np.inf, dtype)
        optimizer.step()
        if overflow:
            assert equal([[p.data for p in parameters], state_arrays(optimizer)], before), "a step was taken"
            assert optimizer.loss_scale == scale / 2
            continue
        serial.step()
        states = dict(zip(optimizer.parameters, optimizer.state, strict=True))  # groups have another order
        copies = [states[p]["master"] for p in parameters]
        assert equal(copies, [m.data for m in masters]), "masters differ from the float32 run"
        assert all(copy.dtype == np.float32 for copy in copies)
        assert equal([p.data for p in parameters], [to_16(m.data) for m in masters]), "not rounded once"
        assert all(p.dtype == dtype for p in parameters)
    assert optimizer.skipped_steps == sum(overflows)


def state_arrays(optimizer: Optimizer) -> list[dict[str, np.ndarray]]:
    """Copies of what an optimizer keeps of each parameter."""
    return [{key: np.copy(value) for key, value in state.items()} for state in optimizer.state]


def equal(a: object, b: object) -> bool:
    """Whether nested lists and dicts hold the same arrays, bit by bit; an empty dict equals none."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        length = max(len(a), len(b))
        pairs = zip(a + [{}] * (length - len(a)), b + [{}] * (length - len(b)), strict=True)
        return all(equal(x, y) for x, y in pairs)
    return np.array_equal(np.asarray(a), np.asarray(b))
