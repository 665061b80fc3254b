"""The options of a command from dataclasses and from the flags that strategies declare."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import field, fields, is_dataclass
from typing import Annotated, Any, get_type_hints

import typer

from minigrad.declaration import Flag

from ..registry import class_of, declared_flags, load_strategy, strategy_names
from .parallel import SEQUENCE_PARALLEL


class WithOptions:
    """``command``, whose parameters that are dataclasses become an option for each field that declares one.

    Where two of the dataclasses declare an option, both get its value. Where ``command`` takes ``flags``, it
    also has an option for each flag that a strategy declares, and gets those that were passed. A declared
    flag with the name of one of the command's own options is left out; ``--option`` sets it.
    """

    def __init__(self, command: Callable[..., None]):
        own = inspect.signature(command, eval_str=True)
        self.groups: dict[str, type] = {}
        self.others: list[str] = []
        parameters: dict[str, inspect.Parameter] = {}
        for name, p in own.parameters.items():
            if isinstance(p.annotation, type) and is_dataclass(p.annotation):
                self.groups[name] = p.annotation
                parameters |= fields_of(p.annotation)
            elif name != "flags":
                self.others.append(name)
                parameters[name] = p.replace(kind=p.KEYWORD_ONLY)
        self.takes_flags = "flags" in own.parameters
        flags = declared_flags() if self.takes_flags else {}
        declared = {name: owners for name, owners in flags.items() if name not in parameters}
        parameters |= {name: parameter(name, owners) for name, owners in declared.items()}
        self.command, self.flags = command, list(declared)
        self.__name__, self.__doc__ = command.__name__, command.__doc__
        self.__signature__ = own.replace(parameters=list(parameters.values()))
        self.__annotations__ = {name: p.annotation for name, p in parameters.items()}

    def __call__(self, **values: Any) -> None:
        arguments = {name: values[name] for name in self.others}
        for name, group in self.groups.items():
            arguments[name] = group(**{option: values[option] for option in fields_of(group)})
        if self.takes_flags:
            arguments["flags"] = {name: values[name] for name in self.flags if values[name] is not None}
        self.command(**arguments)


def option(default: Any, help: str, *flags: str, **settings: Any) -> Any:
    """A field of a dataclass that is an option of the command; ``settings`` are those of ``typer.Option``."""
    return field(default=default, metadata={"option": typer.Option(*flags, help=help, **settings)})


def fields_of(group: type) -> dict[str, inspect.Parameter]:
    """A command's parameter for each ``option`` among the fields of a dataclass."""
    hints = get_type_hints(group)
    return {
        f.name: keyword(f.name, f.default, hints[f.name], f.metadata["option"])
        for f in fields(group)
        if "option" in f.metadata
    }


def keyword(name: str, default: Any, kind: Any, option: Any) -> inspect.Parameter:
    annotation = Annotated[kind, option]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def parameter(name: str, owners: Mapping[str, Flag]) -> inspect.Parameter:
    """The command's parameter for a flag, in the words of the first strategy that declares it."""
    flag = next(iter(owners.values()))
    choices = f"; one of {', '.join(flag.choices())}" if flag.choices is not None else ""
    declared = typer.Option(
        f"--{name.replace('_', '-')}",
        help=flag.help + choices,
        metavar=flag.metavar,
        rich_help_panel=f"Options of {', '.join(owners) if len(owners) < 4 else 'several strategies'}",
    )
    return keyword(name, None, flag.type | None, declared)


def options_by_axis(
    flags: Mapping[str, Any], option: Mapping[str, Any], strategy: str, schedule: str | None, sequence: int
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Options of the strategy, the schedule, and the strategy that shares tokens among ``sequence`` ranks.

    An all-reduce that is chosen by measured links is chosen for one axis, that of data where this can.
    Raises ValueError for flags of no axis and options set twice.
    """
    ours = flags_of(strategy)
    pipe = flags_of(schedule, "pipe") if schedule in strategy_names("pipe") else {}
    tokens = flags_of(SEQUENCE_PARALLEL, "sequence") if sequence > 1 else {}
    options, inner, of_tokens = dict(option), {}, {}
    for name, value in flags.items():
        flag = f"--{name.replace('_', '-')}"
        if name not in {*ours, *pipe, *tokens}:
            raise ValueError(f"{flag} is for {whose(name, strategy, schedule)}, or leave the flag out")
        if name in option and name in ours:
            raise ValueError(
                f"{flag} {value} and --option {name}={option[name]} set the same; leave one of them out"
            )
        if name in tokens and (name not in ours or value != "auto"):
            of_tokens[name] = value
        if name in ours:
            options[name] = value
        elif name not in tokens:
            inner[name] = value
    return options, inner, of_tokens


def flags_of(strategy: str, axis: str = "data") -> Mapping[str, Flag]:
    """The flags that a strategy declares."""
    return class_of(load_strategy(strategy, axis)).declaration.flags


def whose(name: str, strategy: str, schedule: str | None) -> str:
    """The strategies or schedules that declare a flag, and the chosen one, in words."""
    owners = declared_flags()[name]
    ours = [owner for owner in owners if owner in strategy_names()]
    if ours:
        return f"--strategy {' or '.join(ours)}, and the strategy here is {strategy}; choose that one"
    return f"--schedule {' or '.join(owners)}, and the schedule here is {schedule or '1f1b'}; choose that one"
