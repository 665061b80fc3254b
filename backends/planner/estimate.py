"""What a step of a layout takes: seconds, bytes by axis, idle time of the pipeline, and memory.

Lecture section: what a cluster would do. Lesson: 15_scale, by ``planner.py``.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property, lru_cache

from ..pipeline import SCHEDULES, Costs, simulate
from .hardware import Hardware
from .layout import Layout, Place
from .net_sizes import NetSizes
from .rank_step import Memory, RankStep, StageSeconds

timetable = lru_cache(maxsize=256)(SCHEDULES["1f1b"].of)


@dataclass(frozen=True)
class Estimate:
    """A step in a layout, by the ranks with the last coordinates of the axes, which have the largest shares.

    ``seconds`` are those of the whole step. ``compute`` and ``links`` are of the stage that is busy longest:
    what it computes, and by axis what it waits for sums and exchanges. ``bubble`` is the share of the
    pipeline's time in which ranks are idle or wait for a message of another stage. ``sent`` are the bytes by
    axis of the stage that sends most, and ``memory`` of the stage that holds most.
    """

    layout: Layout
    seconds: float
    compute: float
    bubble: float
    links: dict[str, float]
    sent: dict[str, int]
    memory: Memory

    @property
    def bound(self) -> str:
        """What takes most of a step: "compute", "bubble", or the messages of an axis, by its name."""
        idle = self.seconds - self.compute - sum(self.links.values())
        parts = {"compute": self.compute, "bubble": idle}
        parts |= self.links
        return max(parts, key=lambda name: parts[name])


class Stages:
    """The ranks with the last coordinates in each stage of a layout, for steps of ``batch`` samples."""

    def __init__(self, net: NetSizes, layout: Layout, batch: int):
        self.net, self.layout = net, layout
        last = Place(layout.data - 1, 0, layout.sequence - 1, layout.model - 1)
        places = (last._replace(pipe=stage) for stage in range(layout.pipe))
        self.ranks = [RankStep(net, layout, place, batch) for place in places]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.net}, {self.layout})"

    @cached_property
    def memory(self) -> Memory:
        """The memory of the stage that holds most."""
        return max((rank.memory() for rank in self.ranks), key=lambda memory: memory.total)

    def passes(self, hardware: Hardware) -> list[tuple[StageSeconds, StageSeconds]]:
        """Seconds of a micro-batch in each stage, forward and backward."""
        return [rank.seconds(hardware) for rank in self.ranks]

    def after(self, hardware: Hardware) -> list[dict[str, float]]:
        """Seconds of the sums of gradients in each stage, by axis."""
        link, itemsize = hardware.link, self.net.itemsize
        return [{axis: t.seconds(link, itemsize) for axis, t, _ in rank.sums()} for rank in self.ranks]

    def least_seconds(self, hardware: Hardware) -> float:
        """What a step takes at least, if no stage ever waits for another."""
        busy = (self.layout.micro * (f.total + b.total) for f, b in self.passes(hardware))
        return max(busy) + max(sum(seconds.values()) for seconds in self.after(hardware))

    def estimate(self, hardware: Hardware) -> Estimate:
        """A step by 1F1B, whose stages are simulated; then gradients are summed.

        Model ranks wait for every sum. A ring hides its messages beside the products of scores and values.
        """
        layout, itemsize, after = self.layout, self.net.itemsize, self.after(hardware)
        forward, backward = zip(*self.passes(hardware), strict=True)
        crossing = max((max(rank.rows) * rank.output * itemsize for rank in self.ranks[:-1]), default=0)
        message = hardware.link.seconds(crossing)
        costs = Costs([f.total for f in forward], [b.total for b in backward], message=message)
        plan = simulate(timetable(layout.pipe, layout.micro), costs)
        busiest = max(range(layout.pipe), key=lambda s: forward[s].total + backward[s].total)
        links: defaultdict[str, float] = defaultdict(float, after[busiest])
        for passed in (forward[busiest], backward[busiest]):
            for axis, seconds in passed.links.items():
                links[axis] += layout.micro * seconds
        return Estimate(
            layout,
            float(plan.makespan) + max(sum(seconds.values()) for seconds in after),
            layout.micro * (forward[busiest].compute + backward[busiest].compute),
            float(plan.bubble),
            {axis: seconds for axis, seconds in links.items() if seconds},
            max((rank.sent() for rank in self.ranks), key=lambda nbytes: sum(nbytes.values())),
            self.memory,
        )
