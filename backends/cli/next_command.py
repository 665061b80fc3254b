"""The command that is worth trying after another one; printed only on a terminal, where somebody reads it."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.text import Text

from minigrad.models import find_net
from minigrad.strategy import Strategy

from ..process.launcher import under_mpiexec
from .options import ParallelOptions
from .run_folder import MODEL

HOW_RANKS_RUN = ("transport", "oversubscribe")  # options that the next command does not need


class NextCommand(NamedTuple):
    """A command line, and what it is for."""

    command: str
    purpose: str

    def show(self, console: Console | None = None) -> None:
        """Print it in a line that stays one on a narrow terminal; a rank of a job prints nothing."""
        console = console or Console()
        if console.is_terminal and not under_mpiexec():
            text = Text.assemble("next: ", (self.command, "bold cyan"), f"  ({self.purpose})")
            console.print(text, highlight=False, soft_wrap=True)


def after_training(
    options: ParallelOptions, flags: Mapping[str, Any], backend: Strategy, trace: Path | None = None
) -> NextCommand:
    """What shows the trace; without one the proof of the same ranks and strategy, or their lesson.

    One rank that learned from text leads to what it writes.
    """
    if trace is not None:
        return NextCommand(f"minigrad trace {shlex.quote(str(trace))}", "or open the file in ui.perfetto.dev")
    if backend.size > 1 and backend.traits.equals_serial:
        return NextCommand(f"minigrad prove{arguments(options, flags)}", "are these one machine's gradients?")
    models = Path("runs").glob(f"*-{options.net}*/{MODEL}") if backend.size == 1 else ()
    if find_net(options.net).sizes and (newest := max(models, default=None)) is not None:
        return NextCommand(f"minigrad generate {shlex.quote(str(newest))}", "what has it learned to write?")
    return lesson_of(backend)


def lesson_of(backend: Strategy) -> NextCommand:
    """The lesson that the docstring of the strategy's module names."""
    module = sys.modules.get(type(backend).__module__)  # None for a class whose module was loaded by hand
    text = (module.__doc__ if module is not None else None) or ""
    number = re.search(r"Lesson: (\d\d)_", text)
    if backend.size == 1 or number is None:
        return NextCommand("minigrad lesson 01", "how a network learns; minigrad lesson lists all")
    return NextCommand(f"minigrad lesson {number[1]}", "it explains this strategy step by step")


def arguments(options: ParallelOptions, flags: Mapping[str, Any]) -> str:
    """The options that are not the default, as they are written on a command line."""
    own = {f.name: (getattr(options, f.name), f.default) for f in fields(options)}
    values = {name: value for name, (value, default) in own.items() if value != default} | dict(flags)
    words: list[str] = []
    for name, value in values.items():
        if name not in HOW_RANKS_RUN:
            flag = f"--{name.replace('_', '-')}"
            for one in value if isinstance(value, list) else [value]:
                words += [flag] if one is True else [flag, str(one)]
    return "".join(f" {shlex.quote(word)}" for word in words)
