"""An all-reduce that takes, for an array of n bytes, the algorithm with the least cost on measured links.

Latency counts for small arrays, which trees and doubling carry in few messages; bandwidth for large ones, of
which rings and halving send each byte about twice. Source: Thakur, Rabenseifner and Gropp 2005.
Lecture section: what a cluster would do. Lesson: 15_scale.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Concatenate

import numpy as np

from minigrad.device import Array
from minigrad.settings_repr import settings_repr

from .costs import ROUNDS, Machine, allreduce_seconds, fastest_allreduce
from .doubling import doubling_allreduce
from .halving import rabenseifner_allreduce
from .hierarchical import hierarchical_allreduce
from .link import Link, greatest, measure_ring
from .ring import ring_allreduce
from .send_recv import Communicator, Operator
from .tree import reduce_broadcast_allreduce

ALGORITHMS: Mapping[str, Callable[Concatenate[Communicator, Array, ...], Array]] = {
    "tree": reduce_broadcast_allreduce,
    "ring": ring_allreduce,
    "doubling": doubling_allreduce,
    "halving": rabenseifner_allreduce,
    "hierarchical": hierarchical_allreduce,
}
"""The algorithms with a cost in ``costs.ROUNDS``, by the same names."""

NONE = Link(0.0)  # of one rank, which sends nothing


class AutomaticAllreduce:
    """An all-reduce that measures its links once, and takes the algorithm with the least cost for each size.

    ``link`` is that of all ranks where it is known; otherwise the first call, or ``prepare``, measures for
    some hundredths of a second. All ranks take the slowest numbers of any, and so the same algorithm.
    ``taken`` has the name of the algorithm by the number of bytes.
    """

    __repr__ = settings_repr

    def __init__(self, link: Link | None = None):
        self.link = link
        self.machine: Machine | None = None
        self.taken: dict[int, str] = {}

    def prepare(self, comm: Communicator) -> Machine:
        """The links between the ranks of ``comm``; all ranks call together."""
        if self.machine is None:
            links = (self.link, self.link) if self.link is not None else measure_links(comm)
            self.machine = Machine(tuple(comm.nodes), *links)
        return self.machine

    def __call__(self, comm: Communicator, x: Array, operator: Operator = np.add) -> Array:
        machine = self.prepare(comm)
        if x.nbytes not in self.taken:
            self.taken[x.nbytes] = fastest_allreduce(x.nbytes, machine, x.itemsize)
        return ALGORITHMS[self.taken[x.nbytes]](comm, x, operator)

    def seconds(self, nbytes: float) -> float:
        """The cost of the algorithm that it takes for ``nbytes``, after ``prepare``."""
        assert self.machine is not None, "prepare has not been called"
        return allreduce_seconds(fastest_allreduce(nbytes, self.machine), nbytes, self.machine)

    def chosen(self) -> dict[str, Any]:
        """The links, as JSON can hold them: with these ``set_chosen`` leads to the same choices."""
        if self.machine is None:
            return {}
        return {"links": {"inside": list(self.machine.inside), "between": list(self.machine.between)}}

    def set_chosen(self, comm: Communicator, chosen: Mapping[str, Any]) -> None:
        """Take the links of ``chosen``, or if it has none, measure them anew; all ranks call together."""
        self.machine = None
        if links := chosen.get("links"):
            self.machine = Machine(tuple(comm.nodes), Link(*links["inside"]), Link(*links["between"]))

    def words(self) -> str:
        """What it took, and by which links."""
        if self.machine is None or not self.taken:
            return "nothing yet"
        names: dict[str, list[int]] = {}
        for nbytes, name in sorted(self.taken.items()):
            names.setdefault(name, []).append(nbytes)
        taken = ", ".join(f"{name} for {sizes(of)}" for name, of in names.items())
        inside, between = self.machine.inside, self.machine.between
        if len(set(self.machine.nodes)) == 1:
            return f"{taken} (link: {inside.words()})"
        return f"{taken} (links inside a node: {inside.words()}, between nodes: {between.words()})"


def measure_links(comm: Communicator) -> tuple[Link, Link]:
    """The slowest links inside the machines and between them, the same numbers on all ranks.

    The ranks of each machine form a ring, then the first ranks of the machines. Where one of the two rings
    does not exist, its link is the other's.
    """
    nodes = comm.nodes
    ranks = range(comm.size)
    inside = slowest(comm, [rank for rank in ranks if nodes[rank] == nodes[comm.rank]])
    between = slowest(comm, [rank for rank in ranks if nodes.index(nodes[rank]) == rank])
    return inside or between or NONE, between or inside or NONE


def slowest(comm: Communicator, ranks: Sequence[int]) -> Link | None:
    """The slowest link of the rings that the ranks in ``ranks`` form, of any rank; None without a ring."""
    link = measure_ring(comm.subgroup(ranks)) if comm.rank in ranks else None
    latency = greatest(comm, 0.0 if link is None else link.latency)
    seconds_of_byte = greatest(comm, 0.0 if link is None else 1 / link.bandwidth)
    return Link(latency, 1 / seconds_of_byte) if seconds_of_byte else None


def sizes(numbers: Sequence[int]) -> str:
    """Numbers of bytes: "470 kB", "1 to 470 kB"."""
    least, most = (f"{n / 1000:.3g} kB" for n in (numbers[0], numbers[-1]))
    return least if least == most else f"{least} to {most}"


assert ALGORITHMS.keys() == ROUNDS.keys()
