"""The layouts in which all ranks have something to do, and their estimates, best first.

Lecture section: what a cluster would do. Lesson: 15_scale. Best is the least time of a step among those that
fit into memory; of equal ones the one that holds least.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

from minigrad.data import shares

from ..partition import optimal
from .estimate import Estimate, Stages
from .hardware import Hardware
from .layout import FORMS, Layout
from .net_sizes import NetSizes

MICRO = (1, 2, 4, 8)  # micro-batches, in ranks of the pipeline
MOST_SLOTS = 2**14  # ranks of a pipeline x its micro-batches: a longer timetable is not simulated
MOST_STEPS = 2_000_000  # of the search for the bounds of stages


class Plans(NamedTuple):
    """The best layouts that fit, best first; the number of others that fit; those over memory, by need."""

    fitting: list[Estimate]
    slower: int
    over: list[tuple[Layout, float]]


def layouts(net: NetSizes, ranks: int, batch: int, *, many: bool = False) -> Iterator[Layout]:
    """The layouts of ``ranks`` in which every rank has a part of the work of a step of ``batch`` samples.

    With ``many`` they are those of more micro-batches than others have, up to one for each sample.
    """
    work, bounds = net.work(), dict[int, tuple[int, ...]]()
    for shape in shapes(ranks):
        data, pipe, sequence, model = shape
        if pipe > len(work):
            continue
        if pipe not in bounds:
            bounds[pipe] = bounds_of(work, pipe)
        for micro in micros_of(pipe, batch // data, many=many):
            for form, split_tokens, own in product(
                FORMS if sequence > 1 else FORMS[:1],
                (False, True) if model > 1 else (False,),
                (False, True) if data > 1 else (False,),
            ):
                layout = Layout(*shape, micro, form, split_tokens, own, bounds[pipe])
                if net.reason_against(layout, batch) is None:
                    yield layout


def micros_of(pipe: int, rows: int, *, many: bool) -> list[int]:
    """The numbers of micro-batches to try for ``rows`` samples; ``many`` are doublings, and one each."""
    few = {pipe * times for times in MICRO} | ({rows} if rows < pipe else set())
    if not many:
        return sorted(few)
    most = rows if pipe == 1 else min(rows, MOST_SLOTS // pipe)
    doublings = {pipe * 2**power for power in range(most.bit_length()) if pipe * 2**power <= most}
    return sorted((doublings | {most}) - few)


def bounds_of(work: Sequence[float], pipe: int) -> tuple[int, ...]:
    """The stages of which the largest has least work; of very many layers, stages of as many layers each."""
    if pipe == 1:
        return ()
    if len(work) ** 2 * pipe > MOST_STEPS:
        return (*(share.start for share in shares(len(work), pipe)), len(work))
    return tuple(optimal(work, pipe))


def shapes(ranks: int) -> Iterator[tuple[int, int, int, int]]:
    """All ways to write ``ranks`` as a product of four numbers."""
    divisors = [n for n in range(1, ranks + 1) if ranks % n == 0]
    for data in divisors:
        for pipe in (n for n in divisors if ranks // data % n == 0):
            for sequence in (n for n in divisors if ranks // (data * pipe) % n == 0):
                yield data, pipe, sequence, ranks // (data * pipe * sequence)


def best_first(net: NetSizes, ranks: int, hardware: Hardware, batch: int, *, most: int = 12) -> Plans:
    """The ``most`` layouts of ``ranks`` that take least among those that fit into memory.

    Ranks without a pipeline take as few micro-batches as fit, since more of them save memory alone. Where
    nothing fits, as many as samples are tried too. Layouts are simulated in the order of what they take at
    least, until no other one can be among the best.
    """
    fitting: list[tuple[float, float, Stages]] = []
    over: list[tuple[Layout, float]] = []
    enough: set[Layout] = set()
    for many in (False, True):
        if fitting:
            break
        for layout in layouts(net, ranks, batch, many=many):
            whole = layout._replace(micro=1)
            if whole in enough:
                continue
            stages = Stages(net, layout, batch)
            if stages.memory.total > hardware.memory:
                over.append((layout, stages.memory.total))
                continue
            fitting.append((stages.least_seconds(hardware), stages.memory.total, stages))
            if layout.pipe == 1:
                enough.add(whole)
    best: list[Estimate] = []
    for least, _, stages in sorted(fitting, key=lambda one: one[:2]):
        if len(best) == most and least > best[-1].seconds:
            break
        best = sorted([*best, stages.estimate(hardware)], key=lambda e: (e.seconds, e.memory.total))[:most]
    return Plans(best, len(fitting) - len(best), sorted(over, key=lambda pair: pair[1]))
