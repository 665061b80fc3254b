"""Laws of backends/cli/utilization.py and backends/planner/sizes_of_net.py: operations are those of the nets'
products, the peak is that of the fastest product, and all ranks count.
"""

from __future__ import annotations

import math
from itertools import chain, repeat
from unittest.mock import patch

import numpy as np

from backends.cli import utilization
from backends.cli.utilization import SECONDS, SIDE, Utilization, peak_of_product, utilization_of
from backends.planner.sizes_of_net import operations_of_sample
from minigrad import nn
from minigrad.models import NETS, Net
from minigrad.module import Sequential
from minigrad.tape import Tape
from minigrad.tensor import Tensor


def operations_on_a_tape(net: Net) -> float:
    """Multiplications and additions of a net for images, by the shapes that its layers see."""
    model = net.build(np.random.default_rng(0))
    assert isinstance(model, Sequential)
    x, total = Tensor(np.zeros((1, *net.sample), np.float32)), 0
    with Tape() as tape:
        for layer in model.layers:
            needs = bool(tape.entries)  # a gradient of the layer's input
            y = layer(x)
            for weight in (p for p in layer.parameters() if p.ndim > 1):
                assert isinstance(layer, nn.Linear | nn.Conv2d)
                places = math.prod(y.shape) // weight.shape[0]
                total += 2 * math.prod(weight.shape) * places * (3 if needs else 2)
            x = y
    return total


def operations_are_those_of_products() -> None:
    for name, net in NETS.items():
        if net.sizes:
            s, h, n, v = (net.sizes[key] for key in ("length", "width", "blocks", "symbols"))
            right = 3 * (n * (24 * s * h**2 + 2 * s * (s + 1) * h) + 2 * s * h * v)
        else:
            right = operations_on_a_tape(net)
        count = operations_of_sample(net)
        assert count == right, f"{name}: {count:,.0f} operations, right are {right:,.0f}"


def the_peak_is_of_the_fastest_product(times: list[float]) -> None:
    """Products that take these ``times``, and then 1 ms each, on an injected clock."""
    now = 0.0
    ticks = [now := now + seconds for seconds in chain([0.0], times, repeat(1e-3, 200))]
    clock = iter(ticks)
    with patch.object(utilization, "perf_counter", lambda: next(clock)):
        peak = peak_of_product("float32")
    done = len(ticks) - len(list(clock)) - 1
    taken = np.diff(ticks)[:done]
    assert done >= 2 and (taken[:-1].sum() < SECONDS or done == 2), f"{done} products in {taken.sum()} s"
    assert math.isclose(peak, 2 * SIDE**3 / taken.min()), f"{peak:.3g} operations a second"


def all_ranks_count(samples_per_second: float, ranks: int, peak: float) -> None:
    net = NETS["mlp"]
    with patch.object(utilization, "peak_of_product", lambda dtype: peak):
        speed = utilization_of(net, samples_per_second, ranks, "float32")
    assert isinstance(speed, Utilization)
    right = operations_of_sample(net) * samples_per_second / ranks / peak
    assert math.isclose(speed.share, right), f"a share of {speed.share:.2g}, right is {right:.2g}"
