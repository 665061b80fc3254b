"""What one rank of a layout computes, holds and sends in a step.

Lecture section: what a cluster would do. Lesson: 15_scale, by ``estimate.py``. Counted are the bytes of a
training step, from forward to the sums of gradients; not those of a check of the batch, nor of the norms that
clipping compares, a few numbers for each parameter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from ..comm.collectives.link import Link
from .hardware import Hardware
from .layout import Layout, Place
from .net_sizes import NetSizes, Passes, StageCosts
from .transfers import AllGather, AllReduce, Transfer, part_sizes

LOSS = 8  # bytes of a rank's loss


class Memory(NamedTuple):
    """Bytes of a rank by kind."""

    parameters: float
    gradients: float
    optimizer: float
    activations: float

    @property
    def total(self) -> float:
        return sum(self)


@dataclass(frozen=True)
class RankStep:
    """What the rank at ``place`` of a layout computes, holds and sends in a step of ``batch`` samples."""

    net: NetSizes
    layout: Layout
    place: Place
    batch: int

    @cached_property
    def rows(self) -> tuple[int, ...]:
        """The samples of each micro-batch."""
        mine = part_sizes(self.batch, self.layout.data)[self.place.data]
        return part_sizes(mine, self.layout.micro)

    @cached_property
    def layers(self) -> range:
        """The layers of the stage; ValueError for several stages without bounds."""
        bounds = self.layout.bounds
        if self.layout.pipe == 1:
            return range(self.net.layers)
        if len(bounds) != self.layout.pipe + 1:
            raise ValueError(f"{self.layout.pipe} stages need {self.layout.pipe + 1} bounds, got {bounds}")
        return range(bounds[self.place.pipe], bounds[self.place.pipe + 1])

    def costs(self, rows: int) -> StageCosts:
        """The costs of a micro-batch of so many samples."""
        return self.net.stage(self.layers, self.layout, self.place, rows, self.batch)

    @cached_property
    def largest(self) -> StageCosts:
        """The costs of the largest micro-batch."""
        return self.costs(max(self.rows))

    @property
    def output(self) -> int:
        """Numbers of one sample that the next stage gets."""
        return self.net.output(self.layers.stop - 1, self.layout, self.place)

    @property
    def input(self) -> int:
        """Numbers of one sample whose gradient the stage before gets."""
        return self.net.output(self.layers.start - 1, self.layout, self.place)

    def sums(self) -> list[tuple[str, Transfer, int]]:
        """The sums of gradients after backward, innermost first: the axis, the sum, and this rank in it."""
        layout, place, mine = self.layout, self.place, self.largest
        sums: list[tuple[str, Transfer, int]] = []
        if mine.partial:
            sums.append(("model", AllReduce(mine.partial, layout.model), place.model))
        ends = (0, layout.pipe - 1)
        if layout.pipe > 1 and place.pipe in ends and (tied := self.net.tied(layout, place, self.batch)):
            sums.append(
                ("pipe", AllReduce(tied + 1, 2), ends.index(place.pipe))
            )  # and whether it was reached
        summary = mine.tensors + 2
        if layout.sequence > 1:
            numbers = mine.parameters + summary + layout.sequence
            sums.append(("sequence", AllReduce(numbers, layout.sequence), place.sequence))
        if layout.data > 1:
            numbers = mine.parameters - mine.own_experts + summary - mine.own_tensors + layout.data
            sums.append(("data", AllReduce(numbers, layout.data), place.data))
        return sums

    def sent(self) -> dict[str, int]:
        """The bytes that this rank sends, by axis; the law counts them in a step of every rank."""
        layout, place, itemsize = self.layout, self.place, self.net.itemsize
        nbytes = Counter({"pipe": AllGather((LOSS,) * layout.pipe).sent(place.pipe)})
        for rows, times in Counter(self.rows).items():
            costs = self.costs(rows)
            nbytes["model"] += times * sent_by(place.model, costs.model, itemsize)
            nbytes["sequence"] += times * sent_by(place.sequence, costs.sequence, itemsize)
            nbytes["data"] += times * sent_by(place.data, costs.experts, itemsize)
        crossing = self.output * (place.pipe < layout.pipe - 1) + self.input * (place.pipe > 0)
        nbytes["pipe"] += sum(self.rows) * itemsize * crossing
        for axis, total, rank in self.sums():
            nbytes[axis] += total.nbytes(rank, itemsize)
        return {axis: n for axis, n in nbytes.items() if n}

    def memory(self) -> Memory:
        """The bytes that this rank holds.

        By 1F1B it holds the activations of as many micro-batches as stages are left, itself among them. The
        sum of gradients over ranks stands beside this rank's own.
        """
        mine, layout = self.largest, self.layout
        parameters = float(self.net.itemsize * mine.parameters)
        copies = 1 + (layout.data > 1 or layout.sequence > 1)
        at_once = min(layout.micro, layout.pipe - self.place.pipe)
        return Memory(
            parameters, copies * parameters, self.net.states * parameters, at_once * mine.activations
        )

    def seconds(self, hardware: Hardware) -> tuple[StageSeconds, StageSeconds]:
        """Seconds of a micro-batch forward and backward."""
        mine, itemsize, link = self.largest, self.net.itemsize, hardware.link
        beside = mine.core_forward, mine.core_backward
        seconds = []
        for i, operations in enumerate((mine.forward, mine.backward)):
            around = seconds_of(mine.sequence[i], link, itemsize)
            links = {
                "sequence": max(around - beside[i] / hardware.flops, 0.0),
                "model": seconds_of(mine.model[i], link, itemsize),
                "data": seconds_of(mine.experts[0], link, itemsize) / 2,
            }
            seconds.append(StageSeconds(operations / hardware.flops, links))
        return seconds[0], seconds[1]


class StageSeconds(NamedTuple):
    """Seconds of a pass: what it computes, and by axis what it waits for messages."""

    compute: float
    links: dict[str, float]

    @property
    def total(self) -> float:
        return self.compute + sum(self.links.values())


def sent_by(rank: int, both: Passes, itemsize: int) -> int:
    """The bytes that ``rank`` sends in both passes."""
    return sum(n * transfer.nbytes(rank, itemsize) for passed in both for transfer, n in passed.items())


def seconds_of(transfers: Mapping[Transfer, int], link: Link, itemsize: int) -> float:
    return sum(n * transfer.seconds(link, itemsize) for transfer, n in transfers.items())
