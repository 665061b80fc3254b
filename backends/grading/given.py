"""The submission as a check sees it: its names, whose objects stay in a process of their own."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

from .players import Players
from .task import Wrong


class Missing(Wrong, AttributeError):
    """The submission has no such name."""


class Given:
    """The names of a submission; what the starter defines must be a function or a class.

    Each rank has a program of its own, also where ranks are threads: what one keeps, another does not see.
    """

    def __init__(self, players: Players, source: str, file: str, own: set[str], rank: int = 0):
        self.__file__, self._program = file, (players, source, file, own)
        self._player = players.start(rank, file)
        self._player.request("load", source, file)
        self._ranks: dict[int, Given] = {rank: self}

    def _on(self, rank: int) -> Given:
        if rank not in self._ranks:
            self._ranks[rank] = Given(*self._program, rank)
        return self._ranks[rank]

    def _ended(self) -> bool:
        """Whether the process of one of its programs has ended."""
        return any(given._player.ended for given in self._ranks.values())

    def __getattr__(self, name: str) -> Any:
        try:
            value = self._player.request("name", name)
        except AttributeError:
            near = get_close_matches(name, self._player.request("names"), 1)
            hint = f"; it has {near[0]}: is that the one?" if near else ""
            raise Missing(f"the submission does not define {name}{hint}") from None
        if name in self._program[3] and not callable(value):
            raise Wrong(f"{name} is {value!r:.40}, not a function or a class")
        return value


def on_rank(submission: Any, rank: int) -> Any:
    """The submission as that rank has it."""
    return submission._on(rank) if isinstance(submission, Given) else submission
