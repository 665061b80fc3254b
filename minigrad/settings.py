"""The settings of a function or class, read from its signature, and the check of options against them."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping
from typing import Any, Union, get_args, get_origin


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
    kinds = [get_origin(kind) or kind for kind in (get_args(annotation) if union else [annotation])]
    return [
        kind if isinstance(kind, type) and kind not in (Any, inspect.Parameter.empty) else object
        for kind in kinds
    ]


def check_options(name: str, settings: dict[str, inspect.Parameter], options: Mapping[str, Any]) -> None:
    """Raise ValueError, naming what there is, for an option the strategy has not or of another type."""
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
