"""Strategies by name, found through the entry points that this and other packages declare."""

from __future__ import annotations

import inspect
import types
from ast import literal_eval
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Union, get_args, get_origin

from minigrad.backend import Backend, Serial

from .comm import Comm

GROUP = "minigrad.backends"

Strategy = Callable[[Comm], Backend]


def strategy_names() -> list[str]:
    """The names that ``--strategy`` takes; nothing is imported for them."""
    return sorted({point.name for point in entry_points(group=GROUP)})


def find_strategy(name: str, options: Mapping[str, Any] | None = None) -> Strategy:
    """The strategy called ``name``, to be called with a communicator; ``options`` are its settings.

    Raises ValueError, naming the choices, for an unknown name, an option it has not, or one of another
    type; RuntimeError for a strategy that cannot be imported.
    """
    points = {point.value: point for point in entry_points(group=GROUP, name=name)}
    if not points:
        raise ValueError(f"unknown strategy {name!r}; choose one of {', '.join(strategy_names())}")
    if len(points) > 1:
        origins = " and as ".join(map(origin, points.values()))
        raise RuntimeError(
            f"strategy {name!r} is declared twice, as {origins}; uninstall or rename one of them"
        )
    (point,) = points.values()
    try:
        strategy: Strategy = point.load()
    except (Exception, SystemExit) as error:  # a plug-in's module may do anything
        raise RuntimeError(
            f"strategy {name!r} is declared as {origin(point)}, which cannot be loaded: "
            f"{type(error).__name__}: {error}; install what it needs, or choose another --strategy"
        ) from error
    if not callable(strategy):
        raise RuntimeError(
            f"strategy {name!r} is declared as {origin(point)}, which is a "
            f"{type(strategy).__name__}, not a class or function that takes a communicator"
        )
    if not options:
        return strategy
    check_options(name, settings_of(strategy), options)
    return partial(strategy, **options)


def origin(point: EntryPoint) -> str:
    """The object that an entry point names, and the package that declares it, where that is known."""
    return point.value if point.dist is None else f"{point.value} by the package {point.dist.name}"


def serial(comm: Comm, *, micro_batches: int = 1) -> Serial:
    """One machine, which ``--strategy serial`` names; raises ValueError where there are more."""
    if comm.size > 1:
        raise ValueError(
            f"strategy 'serial' takes 1 rank, got {comm.size}; pass --data 1, or choose another --strategy"
        )
    return Serial(micro_batches)


def read_options(given: Iterable[str]) -> dict[str, Any]:
    """``name=value`` texts as keywords; what is no Python literal stays text. Raises ValueError."""
    options: dict[str, Any] = {}
    for text in given:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not (name.isidentifier() and equals):
            raise ValueError(f"--option takes name=value, as in --option micro_batches=4; got {text!r}")
        if name in options:
            raise ValueError(f"--option {name} is given twice; leave one out")
        try:
            options[name] = literal_eval(value)
        except (ValueError, SyntaxError):
            options[name] = value
    return options


def settings_of(strategy: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """What options can set of a strategy: its keywords, without the communicator and without functions."""
    _, *parameters = inspect.signature(strategy, eval_str=True).parameters.values()
    return {p.name: p for p in parameters if not is_function(p)}


def is_function(p: inspect.Parameter) -> bool:
    """Whether a setting takes functions only."""
    kinds = kinds_of(p.annotation)
    return (Callable in kinds and str not in kinds) or inspect.isroutine(p.default)


def kinds_of(annotation: Any) -> list[type]:
    """The types that an annotation allows; ``object`` where it says nothing."""
    union = get_origin(annotation) in (Union, types.UnionType)
    found = [get_origin(kind) or kind for kind in (get_args(annotation) if union else [annotation])]
    return [
        kind if isinstance(kind, type) and kind not in (Any, inspect.Parameter.empty) else object
        for kind in found
    ]


def check_options(name: str, settings: dict[str, inspect.Parameter], options: Mapping[str, Any]) -> None:
    """Raise ValueError, naming what there is, for an option the strategy has not or of another type."""
    takes_any = any(p.kind is p.VAR_KEYWORD for p in settings.values())
    for option, value in options.items():
        if option not in settings:
            if takes_any:
                continue
            known = ", ".join(str(p.replace(annotation=p.empty)) for p in settings.values())
            raise ValueError(f"strategy {name!r} has no option {option!r}; it has {known or 'none'}")
        kinds = kinds_of(settings[option].annotation)
        if not any(is_a(value, kind) for kind in kinds):
            wanted = " or ".join(WORDS.get(kind, kind.__name__) for kind in kinds)
            raise ValueError(f"option {option!r} of strategy {name!r} must be {wanted}, got {value!r}")


def is_a(value: Any, kind: type) -> bool:
    """Whether ``value`` can stand where ``kind`` is asked for: a whole number is a number, True is not."""
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
