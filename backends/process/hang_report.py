"""What every rank does when a job hangs: who waits for whom, which rank stopped first, and all stacks."""

from __future__ import annotations

import gc
import os
import re
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

STACKS = "stacks.txt"  # in the folder of a training
WAY_OUT = (
    "check that every rank makes the same calls and that the network between hosts works, or raise "
    "MINIGRAD_TIMEOUT"
)
LIBRARY = os.path.dirname(os.__file__)
FRAME = re.compile(r'File "(.*)", line (\d+) in (.*)')  # a line of faulthandler's


def frames_of_threads() -> dict[int, FrameType]:
    """The frame of each thread by its number, as ``sys._current_frames()`` gives them.

    In Python 3.11 that call deadlocks where garbage is collected in it (CPython's issue
    106883), so nothing is collected meanwhile.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return sys._current_frames()
    finally:
        if collects:
            gc.enable()


class HangReported(TimeoutError):
    """A wait of this rank timed out, and the launcher reports what all ranks did then."""


@dataclass(frozen=True)
class RankState:
    """What a rank, or its background, does; ``name`` tells which of the two.

    One that waits has a ``wait`` ("to receive from rank 1 (tag 3) at own.py:9"), the ranks that it waits for
    as ``peers`` (none: it waits for any other), and the time ``since`` when it waits, in seconds of a clock
    that all ranks share. One that does not wait is at ``place``, if this is known, or its program is over.
    """

    rank: int
    name: str
    wait: str = ""
    peers: tuple[int, ...] = ()
    since: float = 0.0
    place: str = ""
    over: bool = False

    def text(self, times: bool) -> str:
        """A line about it, with ``times`` also since when it waits."""
        if self.wait:
            since = f", since {time.strftime('%H:%M:%S', time.localtime(self.since))}," if times else ""
            return f"{self.name} waits{since} {self.wait}"
        if self.over:
            return f"{self.name} has returned"
        where = f"it is at {self.place}" if self.place else "its process does not answer"
        return f"{self.name} does not wait: {where}"


class HangReport:
    """The state of all ranks; ``stacks`` is their Python stacks as text."""

    def __init__(self, states: Iterable[RankState], stacks: str = ""):
        self.states, self.stacks = list(states), stacks

    def first_stopped(self) -> list[int]:
        """The ranks that do not wait, and that others wait for; if all wait, the one that waits longest."""
        waits = [state for state in self.states if state.wait]
        waiting = {state.rank for state in waits}
        ranks = {state.rank for state in self.states}
        peers = {peer for state in waits for peer in (state.peers or ranks)}
        if others := sorted(peers & ranks - waiting):
            return others
        return [min(waits, key=lambda state: (state.since, state.rank)).rank] if waits else []

    def text(self, times: bool = True) -> str:
        """A line for every rank, with the time since when it waits, and one for those that stopped first."""
        lines = [f"  {state.text(times)}" for state in self.states]
        if ranks := self.first_stopped():
            name = "rank" if len(ranks) == 1 else "ranks"
            lines.append(f"  {name} {', '.join(map(str, ranks))} stopped first")
        return "\n".join(lines)


def write_stacks(stacks: str, folder: Path | None) -> None:
    """Write the stacks into the ``folder`` of a training, and say so on stderr.

    Without one they are written to a file of their own under ``runs/``; where that cannot be, to stderr.
    """
    from minigrad.files import replacement  # which loads NumPy, and each rank imports this module first

    stamp = time.strftime("%Y%m%d-%H%M%S")
    file = folder / STACKS if folder is not None else Path("runs") / f"{stamp}-{STACKS}"
    try:
        with replacement(file) as part:
            part.write_text(stacks, encoding="utf-8")
    except OSError as error:
        print(f"minigrad: {error}; these are the stacks of all ranks:\n{stacks}", file=sys.stderr, flush=True)
    else:
        print(f"minigrad: the stacks of all ranks are in {file}", file=sys.stderr, flush=True)


def place_in(frames: Sequence[tuple[str, int, str]]) -> str:
    """The first of these (file, line, function) outside Python's own library, as "own.py:7, in work"."""
    ours = [frame for frame in frames if not frame[0].startswith((LIBRARY, "<frozen"))]
    file, line, function = (ours or frames)[0]
    return f"{os.path.basename(file)}:{line}, in {function}"


def place_of_main_thread(stacks: str, file: str) -> str:
    """Where the thread is whose stack goes through ``file``, by what faulthandler wrote; else empty."""
    for thread in stacks.split("\n\n"):
        frames = [(name, int(line), function) for name, line, function in FRAME.findall(thread)]
        if any(name == file for name, _, _ in frames):
            return place_in(frames)
    return ""
