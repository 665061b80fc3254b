"""The flags of ``train`` and ``prove`` that strategies declare, and which strategy each one is for."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from minigrad.declaration import Flag

from ..registry import declaration, declared_flags, load_strategy, strategy_names


class WithStrategyFlags:
    """``command`` with a parameter for each flag that a strategy declares; it takes those given as ``flags``.

    A declared flag of the name of a flag of the command itself is left out; ``--option`` sets it.
    """

    def __init__(self, command: Callable[..., None]):
        own = inspect.signature(command, eval_str=True)
        parameters = {name: p for name, p in own.parameters.items() if name != "flags"}
        added = {name: owners for name, owners in declared_flags().items() if name not in parameters}
        parameters |= {name: parameter(name, owners) for name, owners in added.items()}
        self.command, self.names = command, list(added)
        self.__name__, self.__doc__ = command.__name__, command.__doc__
        self.__signature__ = own.replace(parameters=list(parameters.values()))
        self.__annotations__ = {name: p.annotation for name, p in parameters.items()}

    def __call__(self, **values: Any) -> None:
        flags = {name: values.pop(name) for name in self.names}
        self.command(**values, flags={name: value for name, value in flags.items() if value is not None})


def parameter(name: str, owners: Mapping[str, Flag]) -> inspect.Parameter:
    """The command's parameter for a flag, in the words of the first strategy that declares it."""
    flag = next(iter(owners.values()))
    choices = f"; one of {', '.join(flag.choices())}" if flag.choices is not None else ""
    option = typer.Option(
        f"--{name.replace('_', '-')}",
        help=flag.help + choices,
        metavar=flag.metavar,
        rich_help_panel=f"Options of {', '.join(owners) if len(owners) < 4 else 'several strategies'}",
    )
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[flag.type | None, option],
    )


def options_by_axis(
    flags: Mapping[str, Any], option: Mapping[str, Any], strategy: str, schedule: str | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options of the strategy and those of the schedule: ``--option``s, and the flags that each declares.

    Raises ValueError for a flag that neither declares, and for an option that is set twice.
    """
    ours = declaration(load_strategy(strategy)).flags
    schedules = () if schedule not in strategy_names("pipe") else (schedule,)
    theirs = {name for one in schedules for name in declaration(load_strategy(one, "pipe")).flags}
    options, inner = dict(option), {}
    for name, value in flags.items():
        flag = f"--{name.replace('_', '-')}"
        if name not in ours and name not in theirs:
            raise ValueError(f"{flag} is for {whose(name, strategy, schedule)}, or leave the flag out")
        if name in option and name in ours:
            raise ValueError(
                f"{flag} {value} and --option {name}={option[name]} set the same; leave one of them out"
            )
        (options if name in ours else inner)[name] = value
    return options, inner


def whose(name: str, strategy: str, schedule: str | None) -> str:
    """In words, which strategies or schedules declare a flag, and what was chosen instead."""
    owners = declared_flags()[name]
    ours = [owner for owner in owners if owner in strategy_names()]
    if ours:
        return f"--strategy {' or '.join(ours)}, and the strategy here is {strategy}; choose that one"
    return f"--schedule {' or '.join(owners)}, and the schedule here is {schedule or '1f1b'}; choose that one"
