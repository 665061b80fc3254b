"""Runs a program on ranks as threads of one process: the default transport, which needs nothing installed.

Lecture section: what a cluster would do. Lesson: 15_scale.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from itertools import chain
from typing import Any

from minigrad.lookup import at_least_one

from .communicator import Result
from .mailboxes import Deadlock, WaitTimeout, World, seeded_turns
from .recoverable_threads import MortalThreadComm
from .threads import ThreadComm

GRACE = 1.0  # seconds that other ranks have to end after a wait has timed out
INTERVAL = 0.1  # seconds between two looks whether one has


def run_ranks(
    n: int,
    fn: Callable[[ThreadComm], Result],
    *,
    rendezvous: bool = False,
    seed: int | None = None,
    rank_0_here: bool = False,
) -> list[Result]:
    """Run ``fn(comm)`` on ``n`` ranks, each a thread, and return what they returned, by rank.

    With ``rendezvous`` a send waits for its receiver, so a program that only buffering saves deadlocks. With
    a ``seed`` one rank runs at a time, in turns drawn from it: the same every time. With ``rank_0_here``
    rank 0 runs on the calling thread, so an interrupt of that thread is raised in rank 0's program.

    An exception in one rank ends the others at their next communication and is raised here. Raises
    Deadlock, which shows who waits for whom, as soon as no rank can continue; RuntimeError for messages
    never received and started communications never finished.
    """
    turns = None if seed is None else seeded_turns(seed)
    world = World(at_least_one("the number of ranks", n), rendezvous=rendezvous, turns=turns)
    return run_world(world, fn, rank_0_here=rank_0_here)


def run_world(
    world: World,
    fn: Callable[[Any], Result],
    kind: type[ThreadComm] = MortalThreadComm,
    rank_0_here: bool = False,
) -> list[Result]:
    """Run ``fn`` on a thread for each rank of ``world``, with communicators of a ``kind``."""
    n = world.size
    comms = [kind(world, rank, list(range(n))) for rank in range(n)]
    results: list[Any] = [None] * n
    errors: list[BaseException | None] = [None] * n

    def work(rank: int) -> None:
        try:
            world.start(rank)
            results[rank] = fn(comms[rank])
        except BaseException as error:
            errors[rank] = error
        world.leave(rank, failed=errors[rank] is not None)
        if rank_0_here and rank and isinstance(error := errors[rank], WaitTimeout):
            end_with_rank_0(world, rank, error)

    ranks = range(int(rank_0_here), n)
    threads = [threading.Thread(target=work, args=(r,), name=f"rank {r}", daemon=True) for r in ranks]
    for thread in threads:
        thread.start()
    if rank_0_here:
        work(0)
        if (error := errors[0]) is not None and not isinstance(error, Exception):
            raise error  # an interrupt: the other ranks end at their next communication, or with the process
    for thread in chain(threads, world.threads):  # a background ends after its rank, which may open more
        while thread.is_alive() and not world.gave_up(GRACE):
            thread.join(INTERVAL)
    if world.failed is not None:
        raise errors[world.failed] or RuntimeError(f"rank {world.failed} failed")
    if world.deadlock is not None:
        raise Deadlock(world.deadlock, world.stacks)
    check_nothing_pending(world, [comm.started for comm in comms])
    return results


def end_with_rank_0(world: World, rank: int, error: WaitTimeout) -> None:
    """End the process where rank 0, which would raise this rank's error, does not end, as MPI would."""
    with world.lock:
        ended = world.conditions[rank].wait_for(lambda: 0 not in world.running, GRACE)
    if not ended:
        sys.stdout.flush()
        text = f"minigrad: {error}\nrank 0 does not end by itself, so the process ends"
        print(error.stacks, text, sep="\n", file=sys.stderr, flush=True)
        os._exit(1)


def check_nothing_pending(world: World, started: list[dict[object, str]]) -> None:
    """Raise RuntimeError for communications started and never finished, and messages never received."""
    if unfinished := [text for texts in started for text in texts.values()]:
        raise RuntimeError(f"{'; '.join(unfinished)}; call what starting it returned")
    lost = [
        f"{world.owners[m.sender]} to {rank} (tag {tag}, sent at {m.where})"
        for (_, rank, tag), mailbox in world.mailboxes.items()
        for m in mailbox
    ]
    if lost:
        raise RuntimeError(f"messages were sent but never received: {', '.join(lost)}; add the missing recv")
