"""How long a step takes that gathers the weights of each layer when they are needed, or some layers ahead.

Lecture section: data lifetimes. Lesson: 15_scale. ZeRO stage 3 (Rajbhandari et al. 2019), FSDP in PyTorch
(Zhao et al. 2023, arXiv 2304.11277). A rank computes one layer at a time, and its link carries one collective
at a time, in the order in which they were started.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class LayerPass(NamedTuple):
    """A layer's forward or backward: seconds to gather its weights, to compute, to reduce its gradients."""

    layer: int
    gather: float
    compute: float
    reduce: float = 0


def passes_of(layers: Sequence[tuple[float, float]]) -> list[LayerPass]:
    """A step of layers of (seconds to gather, seconds of forward): forward, then backward in reverse.

    Backward computes twice as long, gathers the weights again, and reduce-scatters the gradients, which takes
    as long as an all-gather.
    """
    forward = [LayerPass(i, gather, compute) for i, (gather, compute) in enumerate(layers)]
    return forward + [LayerPass(i, g, 2 * c, g) for i, g, c, _ in reversed(forward)]


def step_seconds(passes: Sequence[LayerPass], prefetch: int) -> float:
    """Seconds of a step that starts to gather ``prefetch`` passes ahead when a layer begins to compute."""
    clock = link = 0
    arrivals: dict[int, float] = {}  # of the layers on their way

    def gather(one: LayerPass) -> None:
        nonlocal link
        if one.layer not in arrivals:
            link = arrivals[one.layer] = max(link, clock) + one.gather

    for i, one in enumerate(passes):
        gather(one)
        clock = max(clock, arrivals.pop(one.layer))
        for ahead in passes[i + 1 : i + 1 + prefetch]:
            gather(ahead)
        clock += one.compute
        link = max(link, clock) + one.reduce
    return max(clock, link)


def sequential_seconds(passes: Sequence[LayerPass]) -> float:
    """``step_seconds`` without prefetch: nothing is hidden, and all times add up."""
    return sum(one.gather + one.compute + one.reduce for one in passes)


def one_ahead_seconds(passes: Sequence[LayerPass]) -> float:
    """``step_seconds`` one pass ahead: beside each pass, the reduction before it and the gathering after it.

    The first gathering and the last reduction have nothing to hide behind:
    g_1 + sum over i of max(c_i, r_(i-1) + g_(i+1)) + r_n, with r_0 = g_(n+1) = 0.
    """
    ends = LayerPass(-1, 0, 0)
    beside = [
        before.reduce + after.gather
        for before, after in zip([ends, *passes], [*passes[1:], ends], strict=False)
    ]
    hidden = sum(max(one.compute, other) for one, other in zip(passes, beside, strict=True))
    return passes[0].gather + hidden + passes[-1].reduce


def least_seconds(passes: Sequence[LayerPass]) -> float:
    """A lower bound for any prefetch: all computing and the two ends, or all that the link carries."""
    computing = passes[0].gather + sum(one.compute for one in passes) + passes[-1].reduce
    return max(computing, sum(one.gather + one.reduce for one in passes))


def most_held(passes: Sequence[LayerPass], sizes: Sequence[int], prefetch: int) -> int:
    """The most of the layers' ``sizes`` that are whole or on their way at once: at most ``prefetch`` + 1."""
    return max(
        sizes[one.layer] + sum(sizes[layer] for layer in {p.layer for p in passes[i + 1 : i + 1 + prefetch]})
        for i, one in enumerate(passes)
    )
