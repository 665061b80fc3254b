"""What a strategy declares for a command line: its flags, its options and their checks, and its report."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Union, get_args, get_origin


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
    """What a strategy declares for a command line. Every method has a default that declares nothing.

    ``chooses`` has the attributes that the strategy itself sets when the model is placed, by their names in
    metrics.json. A subclass declares more; its methods take the strategy on this rank, ``backend``.
    """

    def __init__(self, flags: Mapping[str, Flag] = {}, *, chooses: Mapping[str, str] = {}):
        self.flags, self.chooses = flags, chooses

    def check_options(self, ranks: int, options: Mapping[str, Any]) -> None:
        """Raise ValueError where ``ranks`` ranks cannot train with these options; no rank has started yet."""

    def survives(self, options: Mapping[str, Any]) -> bool:
        """Whether the other ranks go on where one is killed."""
        return False

    def settings(self, backend: Any) -> dict[str, Any]:
        """The strategy's options by name, which must be the same on all ranks."""
        options = settings_of(type(backend))
        return {name: value for name, value in vars(backend).items() if name in options}

    def chosen(self, backend: Any) -> dict[str, Any]:
        """The settings that it chose itself when the model was placed, for ``config`` in metrics.json."""
        return {name: vars(backend)[attribute] for name, attribute in self.chooses.items()}

    def set_chosen(self, backend: Any, chosen: Mapping[str, Any]) -> None:
        """Take the settings that a run chose which this one resumes; called before the model is placed."""

    def writes_report(self, backend: Any) -> bool:
        """Whether this rank writes the files and the table at the end of a run; one rank does."""
        return backend.rank == 0

    def report(self, backend: Any, write: Callable[[], None]) -> None:
        """Call ``write``, which writes the results on the rank that ``writes_report``; all ranks call."""
        write()

    def figures(self, backend: Any) -> dict[str, Any]:
        """What it measured, for metrics.json.

        ``lost`` holds the ranks that ended before the others: the number of each, and "steps", how many steps
        were taken before, with what else is known of it.
        """
        return {}

    def rows(self, backend: Any) -> dict[str, str]:
        """The rows that it adds to the table of a finished run; by default its figures."""
        return {name: str(value) for name, value in self.figures(backend).items()}


def settings_of(strategy: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The parameters of a strategy that options can set: all but the communicator and functions."""
    _, *parameters = inspect.signature(strategy, eval_str=True).parameters.values()
    kinds = {p.name: kinds_of(p.annotation) for p in parameters}
    functions = {name for name, these in kinds.items() if Callable in these and str not in these}
    return {p.name: p for p in parameters if p.name not in functions and not inspect.isroutine(p.default)}


def kinds_of(annotation: Any) -> list[type]:
    """The types that an annotation allows; ``object`` without an annotation."""
    union = get_origin(annotation) in (Union, types.UnionType)
    kinds = [get_origin(kind) or kind for kind in (get_args(annotation) if union else [annotation])]
    return [
        kind if isinstance(kind, type) and kind not in (Any, inspect.Parameter.empty) else object
        for kind in kinds
    ]


def check_options(name: str, settings: dict[str, inspect.Parameter], options: Mapping[str, Any]) -> None:
    """Raise ValueError, listing the options, for an option that is unknown or of another type."""
    takes_any = any(p.kind is p.VAR_KEYWORD for p in settings.values())
    for option, value in options.items():
        if option not in settings:
            if takes_any:
                continue
            known = ", ".join(str(p.replace(annotation=p.empty)) for p in settings.values())
            raise ValueError(f"{name} has no option {option!r}; it has {known or 'none'}")
        kinds = kinds_of(settings[option].annotation)
        if not any(is_a(value, kind) for kind in kinds):
            expected = " or ".join(WORDS.get(kind, kind.__name__) for kind in kinds)
            raise ValueError(f"option {option!r} of {name} must be {expected}, got {value!r}")


def is_a(value: Any, kind: type) -> bool:
    """Whether ``value`` is of this kind: a whole number is a number, True is not."""
    if isinstance(value, bool):
        return kind in (bool, object)
    return isinstance(value, kind) or (kind is float and isinstance(value, int))


WORDS: dict[type, str] = {
    bool: "True or False",
    float: "a number",
    int: "a whole number",
    str: "text",
    types.NoneType: "None",
}
