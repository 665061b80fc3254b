"""The strategies by name: an entry-point group for each axis of the grid, to which other packages can add."""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from inspect import Parameter
from typing import Any

from minigrad.declaration import Flag, check_options, settings_of
from minigrad.lookup import choices, lookup, origins
from minigrad.serial import Serial
from minigrad.strategy import Strategy

from .comm import Communicator

GROUPS = {
    "data": "minigrad.backends",
    "pipe": "minigrad.pipelines",
    "sequence": "minigrad.sequence_parallel",
    "model": "minigrad.model_parallel",
}
"""The entry-point group of the strategies that share the batch, the layers, the tokens, or each layer."""
ELSEWHERE = {
    "pipeline": "--pipe N",
    "layer-wise": "--pipe N --schedule layer-wise",
    "pipedream": "--pipe N --schedule pipedream",
    "sequence-parallel": "--sequence N",
    "model-parallel": "--model N",
}

MakeStrategy = Callable[..., Strategy]


def strategy_names(axis: str = "data") -> list[str]:
    """The names of the strategies for an axis; nothing is imported for them."""
    return sorted(choices({}, GROUPS[axis]))


def load_strategy(name: str, axis: str = "data") -> MakeStrategy:
    """The class or function that makes the strategy called ``name`` from a communicator.

    Raises ValueError, naming the choices, for an unknown name; RuntimeError for one that cannot be imported.
    """
    if axis == "data" and name in ELSEWHERE and name not in strategy_names():
        raise ValueError(
            f"strategy {name!r} shares the model, and --strategy is how --data shares the batch; "
            f"pass {ELSEWHERE[name]} instead"
        )
    strategy: MakeStrategy = lookup("strategy", name, {}, GROUPS[axis])
    if not callable(strategy):
        raise RuntimeError(
            f"strategy {name!r} is declared as {origins(name, GROUPS[axis])}, which is a "
            f"{type(strategy).__name__}, not a class or function that takes a communicator"
        )
    return strategy


def find_strategy(name: str, options: Mapping[str, Any] | None = None, axis: str = "data") -> MakeStrategy:
    """The strategy called ``name`` with these options, to be called with a communicator.

    Raises ValueError for an unknown option, or a value of the wrong type; otherwise as ``load_strategy``.
    """
    strategy = load_strategy(name, axis)
    if not options:
        return strategy
    flags = class_of(strategy).declaration.flags
    readers = {option: flag for option, flag in flags.items() if flag.read is not None}
    read = {o: Parameter(o, Parameter.KEYWORD_ONLY, annotation=flag.type) for o, flag in readers.items()}
    check_options(f"strategy {name!r}", settings_of(strategy) | read, options)
    values = {o: readers[o].read(value) if o in readers else value for o, value in options.items()}  # pyright: ignore
    return partial(strategy, **values)


def class_of(strategy: MakeStrategy) -> type[Strategy]:
    """The class whose traits and declaration a strategy has; a function has the default ones."""
    if isinstance(strategy, type) and issubclass(strategy, Strategy):
        return strategy
    return Strategy


def declared_flags() -> dict[str, dict[str, Flag]]:
    """By name, each strategy's flags of the data and pipe axes; one that cannot be imported has none."""
    flags: dict[str, dict[str, Flag]] = {}
    for axis in ("data", "pipe"):
        for strategy in strategy_names(axis):
            with suppress(RuntimeError):
                made = class_of(load_strategy(strategy, axis))
                for name, flag in made.declaration.flags.items():
                    flags.setdefault(name, {})[strategy] = flag
    return flags


class OneRank(Serial):
    """One machine, which ``--strategy serial`` names; raises ValueError where there are more ranks."""

    def __init__(self, comm: Communicator, *, micro_batches: int = 1):
        if comm.size > 1:
            raise ValueError(
                f"strategy 'serial' takes 1 rank, got {comm.size}; pass --data 1, or choose "
                "another --strategy"
            )
        super().__init__(micro_batches)


def read_options(texts: Iterable[str]) -> dict[str, Any]:
    """``name=value`` texts as keyword arguments; a value that is not a Python literal stays text."""
    options: dict[str, Any] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not (name.isidentifier() and equals):
            raise ValueError(f"--option takes name=value, as in --option micro_batches=4; got {text!r}")
        if name in options:
            raise ValueError(f"--option {name} appears twice; leave one out")
        try:
            options[name] = literal_eval(value)
        except (ValueError, SyntaxError):
            options[name] = value
    return options
