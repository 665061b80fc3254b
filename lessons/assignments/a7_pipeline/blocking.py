"""Whether a pipeline ends where each send waits for its receiver: a harder variant of this assignment."""

from __future__ import annotations

from collections import Counter, deque
from typing import NamedTuple

from backends.pipeline import Forward, Instruction, Timetable, Weight
from backends.pipeline.simulation import Stuck


class Message(NamedTuple):
    """A message that one rank's instruction sends and another's needs."""

    source: int
    sends: Instruction
    to: int
    needs: Instruction


def messages(table: Timetable, rank: int) -> list[Message]:
    """A rank's messages in order: it receives right before an instruction and sends right after it."""
    ordered = []
    for i in table.instructions[rank]:
        if isinstance(i, Weight):
            continue
        route, way = table.routes[i.micro], 1 if isinstance(i, Forward) else -1
        stage = route.index((rank, i.chunk))
        for other, receives in ((stage - way, True), (stage + way, False)):
            if 0 <= other < len(route) and route[other][0] != rank:
                peer, chunk = route[other]
                its = type(i)(i.micro, chunk)
                ordered.append(Message(peer, its, rank, i) if receives else Message(rank, i, peer, its))
    return ordered


def check_blocking(table: Timetable) -> None:
    """Raise Stuck where sends that wait for their receivers never end, as 1F1B's between neighbours."""
    pending = [deque(messages(table, rank)) for rank in range(table.ranks)]
    # A message is sent when it is the next one of both of its ranks.
    while sent := [m for m, n in Counter(mine[0] for mine in pending if mine).items() if n == 2]:
        for message in sent:
            pending[message.source].popleft()
            pending[message.to].popleft()
    waiting = [
        f"rank {rank}, after {m.sends}, waits for rank {m.to} to receive it"
        if m.source == rank
        else f"rank {rank} waits for rank {m.source} to send what {m.needs} needs"
        for rank, m in ((rank, mine[0]) for rank, mine in enumerate(pending) if mine)
    ]
    if waiting:
        raise Stuck(
            f"schedule {table.schedule.name} of {table.ranks} ranks never ends where sends wait for their "
            f"receivers: {'; '.join(waiting)}"
        )
