"""Where consecutive layers are cut into the stages of a pipeline: the largest stage is as small as possible.

Lecture section: pipelining. Lesson: 13_pipeline. n consecutive layers become k consecutive parts, none empty,
given as k + 1 bounds: part s is the layers from ``bounds[s]`` to ``bounds[s + 1]``. The cost of a layer is in
seconds or in bytes. Sums are exact, also those of floats, so that equal costs compare as equal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import accumulate, pairwise
from statistics import median
from time import perf_counter

import numpy as np

from minigrad.data import Batch
from minigrad.device import Array, array_module
from minigrad.lookup import at_least_one
from minigrad.module import Module, Sequential
from minigrad.recompute import Replay
from minigrad.sample import inputs_of
from minigrad.tape import Tape
from minigrad.tensor import Tensor
from minigrad.work import Loss

from .comm.collectives import broadcast
from .comm.communicator import Communicator
from .comm.gpu import synchronize
from .placement import full_nbytes

Numbers = Sequence[float] | np.ndarray


def optimal(costs: Numbers, parts: int) -> list[int]:
    """The bounds of ``parts`` parts of which the largest is as small as possible.

    Of several solutions it returns the one with the shortest first part, then second part, and so on: in a
    pipeline the first ranks hold the most activations. Takes n**2 * parts steps. Raises ValueError for more
    parts than layers, and costs that are negative or not finite.
    """
    sizes = exact(costs, parts)
    n, ends = len(sizes), list(accumulate(sizes, initial=0))
    largest: list[list[float]] = [[ends[n] - end for end in ends]]  # [k - 1][i]: of layers i.. in k parts
    for k in range(2, parts + 1):
        rest = largest[-1]  # [j]: the largest of the other k - 1 parts, if the first of k ends at j
        ways = [[max(ends[j] - ends[i], rest[j]) for j in range(i + 1, n - k + 2)] for i in range(n + 1)]
        largest.append([min(way, default=math.inf) for way in ways])
    bounds = [0]
    for rest in largest[-2::-1]:
        i = bounds[-1]
        bounds.append(next(j for j in range(i + 1, n) if max(ends[j] - ends[i], rest[j]) <= largest[-1][0]))
    return [*bounds, n]


def exact(costs: Numbers, parts: int) -> list[int]:
    """The costs as whole numbers in the same proportions. Raises ValueError as ``optimal``."""
    n = len(costs)
    if not 1 <= parts <= n:
        raise ValueError(f"{n} layers can be cut into 1 to {n} parts, none of them empty; got {parts} parts")
    for i, cost in enumerate(costs):
        if not 0 <= cost < math.inf:
            raise ValueError(f"layer {i} costs {cost}; costs are finite numbers that are not negative")
    fractions = [Fraction(cost.item() if isinstance(cost, np.generic) else cost) for cost in costs]
    unit = math.lcm(*(fraction.denominator for fraction in fractions))
    return [int(fraction * unit) for fraction in fractions]


# Bounds of a model


def check_bounds(bounds: Sequence[int] | str, stages: int, layers: int) -> None:
    """Raise ValueError unless ``bounds`` give every stage a layer, or are "bytes" or "time"."""
    if stages > layers:
        raise ValueError(
            f"{stages} stages cannot each have one of the model's {layers} layers; take at most {layers}"
        )
    if isinstance(bounds, str):
        if bounds not in ("bytes", "time"):
            raise ValueError(f'bounds are "bytes", "time" or numbers, got {bounds!r}')
        return
    ends = [*bounds[:1], *bounds[-1:], len(bounds)]
    if ends != [0, layers, stages + 1] or any(a >= b for a, b in pairwise(bounds)):
        raise ValueError(
            f"the bounds of {stages} stages are {stages + 1} numbers that rise from 0 to the {layers} "
            f"layers, got {tuple(bounds)}"
        )


def bounds_by_bytes(model: Sequential, stages: int, starts: Sequence[int] | None = None) -> tuple[int, ...]:
    """Bounds for the fewest bytes in the largest stage; stages begin at ``starts`` or ``stage_starts``."""
    sizes = [full_nbytes(layer) for layer in model.layers]
    return bounds_of_blocks(sizes, stages, stage_starts(model, stages) if starts is None else starts)


def bounds_by_time(
    comm: Communicator, model: Sequential, stages: int, sample: Sequence[int], n: int
) -> tuple[int, ...]:
    """Bounds, of ``stage_starts``, for the fastest slowest stage, as rank 0 measures with ``n`` samples."""
    costs = np.zeros(len(model.layers))
    if comm.rank == 0:
        x = inputs_of([model], sample, n).data
        costs[:] = costs_by_time(model, Batch(x, array_module(x).zeros(n, dtype=int)))
    return bounds_of_blocks(broadcast(comm, costs).tolist(), stages, stage_starts(model, stages))


def stage_starts(model: Sequential, stages: int) -> Sequence[int]:
    """The layers with parameters, if there are enough for ``stages``; else all.

    So every rank has something to train, and no cut parts a layer from its activation, which may be one pass.
    """
    sized = [i for i, layer in enumerate(model.layers) if full_nbytes(layer)]
    return sized if len(sized) >= stages else range(len(model.layers))


def bounds_of_blocks(costs: Sequence[float], stages: int, starts: Sequence[int]) -> tuple[int, ...]:
    """The bounds for which the largest stage is as small as possible; a stage starts at one of ``starts``."""
    cuts = [0, *starts[1:], len(costs)]
    blocks = [sum(costs[a:b]) for a, b in pairwise(cuts)]
    return tuple(cuts[i] for i in optimal(blocks, stages))


# The cost of a layer


def costs_by_time(
    model: Sequential,
    batch: Batch,
    loss_fn: Loss | None = None,
    *,
    repeats: int = 5,
    clock: Callable[[], float] = perf_counter,
) -> list[float]:
    """Seconds of each layer's forward and backward over ``batch``, the median of ``repeats`` after a warm-up.

    Layers run in the model's order, each on its own tape with the output of the one before; with a
    ``loss_fn`` the last one includes the loss. Backward computes the gradients of parameters and, except in
    the first layer, of the input. Gradients, running statistics and random generators keep their state.
    Measurements differ between ranks: let one rank measure, and broadcast. Raises ValueError for 0 repeats.
    """
    at_least_one("repeats", repeats)
    parameters = model.parameters()
    saved = [(p.grad, p.grad_buffer) for p in parameters]
    seconds: list[list[float]] = [[] for _ in model.layers]
    with Replay(model):
        for _ in range(1 + repeats):
            x = Tensor(batch.x)
            for i, layer in enumerate(model.layers):
                for p in parameters:
                    p.grad = p.grad_buffer = None
                last = loss_fn if i == len(model) - 1 else None
                start = clock()
                y = forward_backward_layer(layer, x, batch, last)
                seconds[i].append(clock() - start)
                x = Tensor(y, requires_grad=y.dtype.kind == "f")
    for p, (grad, buffer) in zip(parameters, saved, strict=True):
        p.grad, p.grad_buffer = grad, buffer
    return [median(times[1:]) for times in seconds]


def forward_backward_layer(layer: Module, x: Tensor, batch: Batch, loss_fn: Loss | None) -> Array:
    """Run ``layer`` forward and, from a gradient of ones, backward; return its output."""
    with Tape() as tape:
        y = layer(x)
        end = y if loss_fn is None else loss_fn(y, batch.y)
    if end.tape is tape:
        tape.backward(end, 1.0)
    synchronize()
    return y.data
