"""Laws of lessons/minigrad_course/machines/sharding_roofline.py: a bound is the least number of tokens for
which counted operations take at least as long as messages on the virtual clock.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from minigrad_course.machines.sharding_roofline import (
    ShardingRoofline,
    data_roofline,
    expert_roofline,
    model_roofline,
    pipeline_roofline,
    sequence_roofline,
)
from minigrad_course.machines.virtual_cluster import VirtualCluster, VirtualComm

from backends.comm.collectives import alltoall, ring_allreduce
from backends.comm.collectives.send_recv import Tag, send_recv
from backends.planner import Hardware, Layout, TransformerSizes
from backends.planner.layout import Place
from backends.planner.rank_step import RankStep

MOST = 60  # tokens that are tried


class Trial(NamedTuple):
    """A sharding: its bound, operations counted and messages sent for so many units of ``tokens``."""

    bound: ShardingRoofline
    operations: Callable[[int], int]
    send: Callable[[VirtualComm, int], object]
    tokens: int = 1


def data_trial(machine: Hardware, ranks: int, n: int, m: int, choices: int) -> Trial:
    """A layer of n rows of p weights, in m + k copies; backward makes two products of each token."""
    weights, experts = n * ranks, m + choices
    return Trial(
        data_roofline(machine, ranks, weights, itemsize=1, experts=experts, choices=choices),
        lambda tokens: sum(2 * 2 * weights for _ in range(tokens) for _ in range(choices)),
        lambda comm, _: ring_allreduce(comm, np.zeros(experts * weights, np.int8)),
    )


def model_trial(machine: Hardware, ranks: int, n: int, m: int, _: int) -> Trial:
    """Widths n p and m p; rank 0 has its rows of one matrix and its columns of the other."""
    width, hidden = n * ranks, m * ranks
    first, second = np.zeros((hidden // ranks, width)), np.zeros((width, hidden // ranks))
    return Trial(
        model_roofline(machine, ranks, width, hidden, itemsize=1),
        lambda tokens: 2 * tokens * (first.size + second.size),
        lambda comm, tokens: ring_allreduce(comm, np.zeros(tokens * width, np.int8)),
    )


def sequence_trial(machine: Hardware, ranks: int, n: int, m: int, _: int) -> Trial:
    """Rows of 2 m p tokens, of which rank 0 has the first and the last m."""
    width, length = n, 2 * m * ranks
    own = [*range(m), *range(length - m, length)]

    def pass_keys(comm: VirtualComm, rows: int) -> None:
        keys_and_values = np.zeros(2 * rows * len(own) * width, np.int8)
        for _ in range(ranks - 1):
            after, before = (comm.rank + 1) % ranks, (comm.rank - 1) % ranks
            send_recv(comm, keys_and_values, after, before, Tag.RING_GATHER)

    return Trial(
        sequence_roofline(machine, ranks, width, length, itemsize=1),
        lambda rows: rows * sum(2 * 2 * width for query in own for _ in range(query + 1)),
        pass_keys,
        len(own),
    )


def expert_trial(machine: Hardware, ranks: int, n: int, m: int, choices: int) -> Trial:
    """An expert of m neurons on each rank; of the p tokens of a unit each expert gets as many choices."""
    unit = ranks

    def exchange(comm: VirtualComm, units: int) -> None:
        rows = [np.zeros(units * choices * n, np.int8) for _ in range(ranks)]
        alltoall(comm, alltoall(comm, rows))

    return Trial(
        expert_roofline(machine, ranks, n, m, itemsize=1, choices=choices),
        lambda units: sum(2 * 2 * n * m for _ in range(units * choices) for _ in range(ranks)),
        exchange,
        unit,
    )


def pipeline_trial(machine: Hardware, _: int, n: int, m: int, choices: int) -> Trial:
    """A stage of k matrices of n x m weights, which sends its output to the next one."""

    def send(comm: VirtualComm, tokens: int) -> None:
        if comm.rank == 0:
            comm.send(np.zeros(tokens * n, np.int8), 1)
        elif comm.rank == 1:
            comm.recv(0)

    return Trial(
        pipeline_roofline(machine, n, choices * n * m, itemsize=1),
        lambda tokens: 2 * tokens * choices * n * m,
        send,
    )


TRIALS = {
    "data": data_trial,
    "model": model_trial,
    "sequence": sequence_trial,
    "experts": expert_trial,
    "pipeline": pipeline_trial,
}


def seconds_of(trial: Trial, machine: Hardware, ranks: int, units: int) -> tuple[float, float]:
    """What computing takes, and what messages take on the virtual clock."""
    cluster = VirtualCluster(ranks, machine.link)
    cluster.run(lambda comm: trial.send(comm, units))
    return trial.operations(units) / machine.flops, cluster.seconds


def a_bound_is_the_least_number_of_tokens(
    name: str, machine: Hardware, ranks: int, n: int, m: int, choices: int
) -> None:
    """At the bound computing takes as long as messages, and with one unit less it does not."""
    trial = TRIALS[name](machine, ranks, n, m, choices)
    tokens = trial.bound.tokens
    units = math.ceil(tokens / trial.tokens - 1e-9) if tokens < math.inf else MOST + 1
    if units <= MOST:
        computing, sending = seconds_of(trial, machine, ranks, max(units, 1))
        assert computing >= sending * (1 - 1e-9), (
            f"{name}: computing takes {computing} s at {units} units, messages {sending} s"
        )
    fewer = min(units - 1, MOST)
    if fewer > 0:
        computing, sending = seconds_of(trial, machine, ranks, fewer)
        assert computing < sending * (1 + 1e-9), (
            f"{name}: computing takes {computing} s at {fewer} units, messages {sending} s"
        )
        ratio = trial.bound.ratio(fewer * trial.tokens)
        assert math.isclose(ratio, computing / sending, rel_tol=1e-9), f"{name}: ratio {ratio}"


def a_ring_is_hidden_in_the_planner(machine: Hardware, ranks: int, blocks: int, itemsize: int) -> None:
    """By the planner's step of a rank a ring without latency waits for nothing from that length on."""
    for each in range(1, 12):
        length = 2 * ranks * each
        net = TransformerSizes(5, length, 4, 2, blocks, itemsize=itemsize)
        step = RankStep(net, Layout(sequence=ranks), Place(sequence=ranks - 1), batch=1)
        waits = step.seconds(machine)[0].links["sequence"]
        bound = sequence_roofline(machine, ranks, 4, length, itemsize=itemsize)
        slack = bound.compute - bound.message
        if abs(slack) > 1e-9 * bound.compute:
            assert (waits == 0) == (bound.tokens == 0), f"S = {length}: {waits} s, bound {bound.tokens}"
