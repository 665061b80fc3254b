"""``minigrad experiment``: lists the experiments, or runs one."""

import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from backends.cli.curves import check_drawing
from backends.cli.next_command import NextCommand
from backends.cli.run_folder import make_folder
from backends.process.launcher import under_mpiexec
from backends.words import counted
from minigrad.lookup import check_choice


def experiment(
    name: Annotated[
        str | None, typer.Argument(help="which one, as speedup (default: list all)", metavar="NAME")
    ] = None,
) -> None:
    """List the experiments, or run one on two MPI processes; result and picture go to runs/experiments/."""
    check_drawing()
    from .experiment import FOLDER
    from .experiments import EXPERIMENTS

    if name is None:
        table = Table("experiment", "what it measures", title="run one with: minigrad experiment speedup")
        table.add_column("minutes", justify="right")
        for one in EXPERIMENTS.values():
            table.add_row(one.name, one.title, str(one.minutes))
        Console().print(table)
        after_experiment(None, list(EXPERIMENTS)).show(Console())
        return
    check_choice("experiment", name, EXPERIMENTS)
    if not under_mpiexec():  # its ranks run this command, too
        make_folder(FOLDER / name, "experiments write there")
        minutes = counted(EXPERIMENTS[name].minutes, "minute")
        print(f"{name} takes about {minutes} on two idle cores", flush=True)
    status = EXPERIMENTS[name]().start()
    if status == 0:
        after_experiment(name, list(EXPERIMENTS)).show(Console())
    sys.exit(status)


def after_experiment(name: str | None, names: list[str]) -> NextCommand:
    """The experiment after this one; of the last one, the lessons."""
    place = 0 if name is None else names.index(name) + 1
    if place < len(names):
        return NextCommand(f"minigrad experiment {names[place]}", "it runs on two MPI processes")
    return NextCommand("minigrad lesson", "all lessons, with what you have done")
