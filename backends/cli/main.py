"""The ``minigrad`` command, whose commands are loaded where they are used."""

from __future__ import annotations

import os
import sys
from importlib.metadata import EntryPoint, entry_points, version
from io import TextIOWrapper
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ..process.hang_report import HangReported
from ..process.launcher import say
from .lazy_command import LazyCommand
from .refusal import in_one_line, is_refusal
from .welcome import leave_reader

OWN = {
    "train": "train:train",
    "prove": "proof:prove",
    "test": "saved_model:test",
    "generate": "generate_command:write",
    "plan": "plan_command:plan",
    "trace": "trace_view:trace",
    "run": "run:app",
    "slurm": "slurm_command:app",
    "doctor": "doctor:doctor",
    "checkpoint": "checkpoint_command:app",
}
GROUP = "minigrad.commands"  # entry points by which other packages, such as the lessons, add commands


class Commands(TyperGroup):
    """The command minigrad, with the commands of this package and of others."""

    def __init__(self, **settings: Any):
        super().__init__(**settings)
        own = [EntryPoint(name, f"backends.cli.{place}", GROUP) for name, place in OWN.items()]
        self.loaded_later = [LazyCommand(entry) for entry in (*own, *entry_points(group=GROUP))]
        for command in self.loaded_later:
            self.add_command(command)

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of all commands, which have their help from now on: no other command needs it."""
        for command in self.loaded_later:
            command.read_help()
        return super().list_commands(ctx)


app = typer.Typer(
    cls=Commands, pretty_exceptions_enable=False, context_settings={"help_option_names": ["-h", "--help"]}
)


def print_version(value: bool) -> None:
    if value:
        print(f"minigrad {version('minigrad-course')}")
        raise typer.Exit


@app.callback()
def common(
    _: Annotated[
        bool,
        typer.Option(
            "--version", help="print the version", metavar="", callback=print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Train neural networks in parallel, and prove that this equals serial training."""


@app.command("version", hidden=True)
def version_command() -> None:
    """Print the version, as --version does."""
    print_version(True)


def command() -> None:
    """Run the command; a mistake of the user ends in one line, not in a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a locale without a character prints ? for it
    try:
        if status := app(sys.argv[1:], prog_name="minigrad", standalone_mode=False):
            sys.exit(status)  # typer returns the status of an Exit, and 130 for a KeyboardInterrupt
    except BrokenPipeError:
        leave_reader()
    except Exception as error:
        if os.environ.get("MINIGRAD_TRACEBACK"):
            raise
        if isinstance(error, HangReported):  # by the launcher, for all ranks
            sys.exit(1)
        if is_refusal(error):
            say(in_one_line(error))
            sys.exit(1)
        usage = getattr(error, "format_message", None)  # typer's message about a wrong argument
        if usage is None:
            raise
        context = getattr(error, "ctx", None)
        say(f"{usage()} (see {context.command_path if context else 'minigrad'} --help)")
        sys.exit(2)
