"""``minigrad slurm``: writes the batch script that runs a command of minigrad on the nodes of a cluster."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from minigrad.files import replacement

from ..launch import slurm as job
from ..launch.launch import find_mpiexec
from ..process.stopped import without
from ..registry import declared_flags
from .batch_script import BatchScript
from .next_command import NextCommand
from .options import ParallelOptions
from .run_folder import check_writable
from .strategy_flags import WithOptions, fields_of

COMMANDS = ("train", "prove", "run")
app = typer.Typer(add_completion=False)


@app.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@WithOptions
def slurm(
    context: typer.Context,
    command: Annotated[
        list[str], typer.Argument(help="train, prove or run, with its arguments", metavar="COMMAND...")
    ],
    script: BatchScript,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="write the script to this file")
    ] = None,
) -> None:
    """Print a batch script for Slurm: a command on several nodes, which goes on from its checkpoints."""
    check_writable(output, "--output")
    by = starter() if job.plugins() else "srun or by the mpiexec beside Python"
    text = script_of(command, context.find_root(), script).text(f"by {by}")
    if output is None:
        print(text, end="")
        again = shlex.join(["minigrad", "slurm", "--output", "job.sh", *sys.argv[2:]])
        NextCommand(again, "the same in a file, for sbatch").show()
    else:
        with replacement(output) as part:
            part.write_text(text, encoding="utf-8")
        print(f"written to {output}")
        NextCommand(f"sbatch {shlex.quote(str(output))}", "where Slurm is").show()


def script_of(words: list[str], context: Any, script: BatchScript) -> BatchScript:
    """The script that runs ``words``, one of ``COMMANDS`` with its arguments, with the options of ``script``.

    ``context`` is Click's for the command minigrad. The command gets as many ranks as the job has tasks.
    Raises ValueError where it asks for another number, and what the command itself raises for its arguments.
    """
    name, *arguments = words
    if name not in COMMANDS:
        raise ValueError(f"minigrad slurm writes jobs for {', '.join(COMMANDS)}, not for {name!r}; pass one")
    inner = context.command.commands[name].make_context(name, list(arguments), parent=context)
    values = inner.params
    if name == "run":
        by_user = inner.get_parameter_source("ranks").name != "DEFAULT"
        check_ranks(values["ranks"] if by_user else script.ranks, "-n", script)
        arguments = arguments if by_user else ["-n", str(script.ranks), *arguments]
    else:
        if values["transport"] == "threads" and script.ranks > 1:
            raise ValueError(
                f"--transport threads runs all ranks in one process, and this job has {script.ranks} tasks; "
                "leave it out"
            )
        others = values["pipe"] * values["sequence"] * values["model"]
        data = values["data"] or max(script.ranks // others, 1)
        check_ranks(data * others, "--data x --pipe x --sequence x --model", script)
        arguments = arguments if values["data"] or data == 1 else [*arguments, "--data", str(data)]
        check_options(values, data)
    if values.get("checkpoint") is not None:
        script = replace(script, checkpoint=values["checkpoint"], resume=values["resume"])
        arguments = without("--resume", arguments)
    return replace(script, words=[name, *arguments])


def check_options(values: dict[str, Any], data: int) -> None:
    """Raise ValueError for a net, strategy or schedule that the job would refuse once it has waited."""
    options = ParallelOptions(**{name: values[name] for name in fields_of(ParallelOptions)})
    flags = {name: values[name] for name in declared_flags() if values.get(name) is not None}
    here = replace(options, data=data, transport="threads", oversubscribe=True)
    here.configure(flags, values.get("batch"))


def check_ranks(ranks: int, of: str, script: BatchScript) -> None:
    """Raise ValueError unless the command has a rank for each task of the job."""
    if ranks != script.ranks:
        raise ValueError(
            f"the command has {of} = {ranks} ranks, and --nodes {script.nodes} x --tasks-per-node "
            f"{script.tasks} are {script.ranks} tasks; make them equal"
        )


def starter(here: job.Job | None = None) -> str:
    """By what minigrad starts the ranks of a job, in words, as this machine's MPI and srun let it."""
    srun = (here or job.Job("", 1, 0)).srun(mpiexec=find_mpiexec() is not None)
    if srun is None:
        return "the mpiexec beside Python"
    return f"srun {srun[-1]}" if srun[-1].startswith("--mpi=") else "srun as it is set up here"
