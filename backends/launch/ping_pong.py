"""Measures the links between the ranks of a job, pair by pair, and finds the network interfaces they use.

``python -m backends.launch.ping_pong``, started by mpiexec or srun, prints them as JSON. An interface is
found by its counter of sent bytes, so it is the one that the messages really took.
"""

from __future__ import annotations

import json
import socket
from itertools import combinations
from typing import NamedTuple

from ..comm import Communicator
from ..comm.allgather_json import allgather_json
from ..comm.collectives import barrier
from ..comm.collectives.link import PROBE, SECONDS, Link, measure_pair
from ..process.sweep import text_of
from .launch import load_mpi

MOST_RANKS = 16  # of which all pairs are measured; of more ranks only the first of each machine
MOST_SECONDS = 60.0  # that all pairs together may take
MEMORY, UNKNOWN = "memory", "none that the kernel counts"


class Pair(NamedTuple):
    """The link between two ranks, and for each of them the interface by which it sends."""

    one: int
    other: int
    latency: float
    bandwidth: float
    interfaces: tuple[str, str]

    @property
    def link(self) -> Link:
        return Link(self.latency, self.bandwidth)


class Links(NamedTuple):
    """The host name and the machine's number of each rank, and the measured pairs."""

    hosts: list[str]
    nodes: list[int]
    pairs: list[Pair]

    @classmethod
    def read(cls, text: str) -> Links:
        """The links of the JSON that ``as_json`` wrote."""
        hosts, nodes, pairs = json.loads(text).values()
        return cls(hosts, nodes, [Pair(*pair[:4], interfaces=tuple(pair[4])) for pair in pairs])

    def as_json(self) -> str:
        return json.dumps(self._asdict())


def measure_links(comm: Communicator) -> Links:
    """The links between all ranks, one pair after the other; all ranks call, and get the same.

    They take 20 ms for a pair, and a minute in all, unless the links are slower than a few MB/s. Of more
    than 16 ranks only the first one of each machine is measured.
    """
    hosts = allgather_json(comm, socket.gethostname())
    nodes = comm.nodes
    ranks = list(range(comm.size))
    if comm.size > MOST_RANKS and len(set(nodes)) > 1:
        ranks = [rank for rank in ranks if nodes.index(nodes[rank]) == rank]
    pairs = list(combinations(ranks, 2))
    mine: dict[str, tuple[float, float, str]] = {}
    for one, other in pairs:
        barrier(comm)  # one pair at a time
        before = sent_bytes()
        link = measure_pair(comm, one, other, min(SECONDS, MOST_SECONDS / len(pairs)))
        if link is not None:
            interface = MEMORY if nodes[one] == nodes[other] else UNKNOWN
            used = used_interface(before, sent_bytes()) or interface
            mine[f"{one} {other}"] = (link.latency, link.bandwidth, used)
    of_ranks = allgather_json(comm, mine)
    measured = []
    for one, other in pairs:
        (latency, bandwidth, out), (_, _, back) = (of_ranks[rank][f"{one} {other}"] for rank in (one, other))
        measured.append(Pair(one, other, latency, bandwidth, (out, back)))
    return Links(hosts, nodes, measured)


def sent_bytes() -> dict[str, int]:
    """The bytes that each network interface of this machine has sent; empty where there is no /proc."""
    rows = [line.partition(":") for line in text_of("/proc/self/net/dev").splitlines() if ":" in line]
    return {name.strip(): int(figures.split()[8]) for name, _, figures in rows}


def used_interface(before: dict[str, int], after: dict[str, int]) -> str | None:
    """The interface that sent most, if it was as much as the measurement's larger messages; else None."""
    growth = {name: count - before.get(name, 0) for name, count in after.items()}
    name = max(growth, key=lambda name: growth[name], default=None)
    return name if name is not None and growth[name] >= PROBE else None


def main() -> None:
    """Measure the links on the ranks of this job; rank 0 prints them."""
    comm = load_mpi()()
    links = measure_links(comm)
    comm.close()
    if comm.rank == 0:
        print(links.as_json())


if __name__ == "__main__":
    main()
