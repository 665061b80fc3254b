"""What a strategy declares for a command line: its flags, the checks of its options, and its report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True)
class Flag:
    """A flag on the command line that sets the strategy's option of the same name.

    ``choices`` lists the allowed texts, for ``--help``. ``read`` turns the text into what the strategy's
    constructor takes, and raises ValueError for a text it does not know.
    """

    type: type
    help: str
    metavar: str | None = None
    choices: Callable[[], Iterable[str]] | None = None
    read: Callable[[Any], Any] | None = None


class Declaration:
    """The part of a strategy that a command line sees. Every method has a default that declares nothing."""

    flags: ClassVar[Mapping[str, Flag]] = {}
    rank = 0
    applies_momentum = False  # the strategy has momentum of its own; the optimizer must have none

    @classmethod
    def check_options(cls, ranks: int, options: Mapping[str, Any]) -> None:
        """Raise ValueError where ``ranks`` ranks cannot train with these options; no rank has started yet."""

    @classmethod
    def survives(cls, options: Mapping[str, Any]) -> bool:
        """Whether the other ranks go on where one is killed."""
        return False

    @property
    def writes_report(self) -> bool:
        """Whether this rank writes the files and the table at the end of a run; one rank does."""
        return self.rank == 0

    def chosen(self) -> dict[str, Any]:
        """The settings that it chose itself when the model was placed, for ``config`` in metrics.json."""
        return {}

    def figures(self) -> dict[str, Any]:
        """What it measured, for metrics.json. ``lost`` holds the ranks that ended before the others."""
        return {}

    def rows(self) -> dict[str, str]:
        """The rows that it adds to the table of a finished run; by default its figures."""
        return {name: str(value) for name, value in self.figures().items()}
