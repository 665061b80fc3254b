"""Settings are passed by name: a call that passes them by position gets an error with the names.

PyTorch takes many of them by position, in another order, so a habit would often set the wrong one.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
Parameter = inspect.Parameter


def settings_by_name(function: Callable[P, R]) -> Callable[P, R]:
    """``function``, whose error for too many arguments by position lists the names of its settings."""

    @wraps(function)
    def checked(*arguments: P.args, **settings: P.kwargs) -> R:
        try:
            return function(*arguments, **settings)
        except (TypeError, ValueError):
            check_positions(function, name_of(function), len(arguments))
            raise

    return checked


def name_of(function: Callable[..., Any]) -> str:
    """The name of a function; of another callable, which may have none, that of its class."""
    return getattr(function, "__name__", type(function).__name__)


def check_positions(function: Callable[..., Any], name: str, count: int, unseen: int = 0) -> None:
    """Raise TypeError, naming the settings, where ``count`` is more than ``function`` takes by position.

    ``unseen`` of its parameters, as ``self``, are not counted. ``name`` is what a user calls it.
    """
    most, settings = positions_and_settings(function)
    if settings and most is not None and count > most - unseen:
        names = ", ".join(f"{setting}=" for setting in settings)
        raise TypeError(
            f"{name} takes {most - unseen} {'argument' if most - unseen == 1 else 'arguments'} by position, "
            f"got {count}; pass settings by name: {names}"
        ) from None


@cache
def positions_and_settings(function: Callable[..., Any]) -> tuple[int | None, list[str]]:
    """How many arguments ``function`` takes by position, None for any number, and the names of the others."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some callables, as those of C, do not say what they take
        return None, []
    kinds = Counter(p.kind for p in parameters)
    positions = kinds[Parameter.POSITIONAL_ONLY] + kinds[Parameter.POSITIONAL_OR_KEYWORD]
    settings = [p.name for p in parameters if p.kind is Parameter.KEYWORD_ONLY]
    return None if kinds[Parameter.VAR_POSITIONAL] else positions, settings
