"""Laws of backends/process/hang_report.py: a job that hangs names the rank that stopped first, what every
rank waits for, and every stack.
"""

from __future__ import annotations

import re
import time
import traceback
from collections.abc import Callable

import numpy as np

from backends.comm import allreduce, run_ranks
from backends.comm.mailboxes import Deadlock, WaitTimeout
from backends.comm.threads import ThreadComm
from backends.process.hang_report import HangReport, RankState

X = np.ones(4)


def waits_for_nobody(comm: ThreadComm, culprit: int) -> None:
    """The culprit receives what no rank sends."""
    if comm.rank == culprit:
        comm.recv((culprit + 1) % comm.size, tag=99)
    while (wait := comm.world.waits.get(culprit)) is None or "(tag 99)" not in wait.what:
        time.sleep(1e-4)  # the culprit stops first
    allreduce(comm, X)


def does_not_return_from_python(comm: ThreadComm, culprit: int) -> None:
    """The culprit computes for ever; here until another rank has given up."""
    comm.barrier_with("to have summed")
    world = comm.world
    if comm.rank == culprit:
        while sum("to receive" in wait.what for wait in list(world.waits.values())) < comm.size - 1:
            time.sleep(1e-4)  # the others wait first
        with world.lock:
            world.limit = 0.1
            world.notify_all()
    while comm.rank == culprit and world.failed is None:
        time.sleep(1e-3)
    allreduce(comm, X)


def leaves_out_a_barrier(comm: ThreadComm, culprit: int) -> None:
    if comm.rank != culprit:
        comm.split(0)


def names_the_rank_that_stopped_first(
    stop: Callable[[ThreadComm, int], None], *, ranks: int, culprit: int, steps: int
) -> None:
    """``ranks`` threads sum ``steps`` times, then the culprit stops in the way of ``stop``."""

    def program(comm: ThreadComm) -> None:
        for _ in range(steps):
            allreduce(comm, X)
        stop(comm, culprit)

    try:
        run_ranks(ranks, program)
    except (Deadlock, WaitTimeout) as error:
        text, stacks = str(error), error.stacks
        shown = "".join(traceback.format_exception(error)).rstrip()
    else:
        raise AssertionError("the program ended")
    assert stacks in shown and shown.endswith(text.rstrip()), f"the report does not stand last: {shown}"
    assert f"\n  rank {culprit} stopped first" in text, f"rank {culprit} stopped: {text}"
    lines = dict(re.findall(r"^  rank (\d+) (waits|does not wait|has returned)\b", text, re.MULTILINE))
    assert sorted(lines) == [str(rank) for rank in range(ranks)], text
    assert all(words == "waits" for rank, words in lines.items() if int(rank) != culprit), text
    running = [rank for rank, words in lines.items() if words != "has returned"]
    parts = dict(re.findall(r"^rank (\d+)\n((?:  .*\n)+)", stacks, re.MULTILINE))
    assert sorted(parts) == sorted(running), f"stacks of ranks {sorted(parts)}"
    for part in parts.values():
        assert f"in {stop.__name__}" in part, part


def tells_apart_who_waits_and_who_does_not(waits: dict[int, tuple[set[int], float]], ranks: int) -> None:
    """``waits`` has the peers of each waiting rank, and since when it waits.

    Follow the waits from any waiting rank: either they lead to ranks that do not wait, and these are named,
    or to waiting ranks only, and the one that waits longest is.
    """
    states = [
        RankState(rank, f"rank {rank}", "to receive", tuple(waits[rank][0]), waits[rank][1])
        if rank in waits
        else RankState(rank, f"rank {rank}", place="own.py:1, in work")
        for rank in range(ranks)
    ]
    reachable = set(waits)
    while True:
        further = reachable | {peer for rank in reachable & set(waits) for peer in waits[rank][0]}
        if further == reachable:
            break
        reachable = further
    idle = sorted(reachable - set(waits))
    longest = [min(waits, key=lambda rank: (waits[rank][1], rank))] if waits else []
    assert HangReport(states).first_stopped() == (idle or longest), f"{waits} of {ranks} ranks"
