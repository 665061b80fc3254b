"""``minigrad slurm``: writes the batch script that runs a command of minigrad on the nodes of a cluster."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from ..launch import slurm
from ..launch.launch import find_mpiexec
from ..process.resume_command import without
from ..registry import declared_flags
from .batch_script import BatchScript
from .options import ParallelOptions
from .strategy_flags import fields_of

COMMANDS = ("train", "prove", "run")


def batch_script(words: list[str], context: Any, **settings: Any) -> str:
    """The script that runs ``words``, one of ``COMMANDS`` with its arguments.

    ``context`` is Click's for the command minigrad, ``settings`` are attributes of ``BatchScript``. The
    command gets as many ranks as the job has tasks. Raises ValueError where it asks for another number, and
    what the command itself raises for its arguments.
    """
    name, *arguments = words
    if name not in COMMANDS:
        raise ValueError(f"minigrad slurm writes jobs for {', '.join(COMMANDS)}, not for {name!r}; pass one")
    inner = context.command.commands[name].make_context(name, list(arguments), parent=context)
    values = inner.params
    ranks = settings["nodes"] * settings["tasks"]
    if name == "run":
        by_user = inner.get_parameter_source("ranks").name != "DEFAULT"
        check_ranks(values["ranks"] if by_user else ranks, "-n", ranks, settings)
        arguments = arguments if by_user else ["-n", str(ranks), *arguments]
    else:
        if values["transport"] == "threads" and ranks > 1:
            raise ValueError(
                f"--transport threads runs all ranks in one process, and this job has {ranks} tasks; "
                "leave it out"
            )
        others = values["pipe"] * values["model"]
        data = values["data"] or max(ranks // others, 1)
        check_ranks(data * others, "--data x --pipe x --model", ranks, settings)
        arguments = arguments if values["data"] else [*arguments, "--data", str(data)]
        check_options(values, data)
    if values.get("checkpoint") is not None:
        settings |= {"checkpoint": values["checkpoint"], "resume": values["resume"]}
        arguments = without("--resume", arguments)
    return BatchScript([name, *arguments], **settings).text(starts())


def check_options(values: dict[str, Any], data: int) -> None:
    """Raise ValueError for a net, strategy or schedule that the job would refuse once it has waited."""
    options = ParallelOptions(**{name: values[name] for name in fields_of(ParallelOptions)})
    flags = {name: values[name] for name in declared_flags() if values.get(name) is not None}
    here = replace(options, data=data, transport="threads", oversubscribe=True)
    here.configure(flags, values.get("batch"))


def check_ranks(ranks: int, of: str, tasks: int, settings: dict[str, Any]) -> None:
    """Raise ValueError unless the command has a rank for each task of the job."""
    if ranks != tasks:
        raise ValueError(
            f"the command has {of} = {ranks} ranks, and --nodes {settings['nodes']} x --tasks-per-node "
            f"{settings['tasks']} are {tasks} tasks; make them equal"
        )


def starts() -> str:
    """By what minigrad will start the ranks in a job, in words, as this machine's MPI and srun let it."""
    if not slurm.plugins():
        return "by srun or by the mpiexec beside Python"
    srun = slurm.Job("", 1, 0).srun(mpiexec=find_mpiexec() is not None)
    if srun is None:
        return "by the mpiexec beside Python"
    plugin = next((word for word in srun if word.startswith("--mpi=")), None)
    return "by srun as it is set up" if plugin is None else f"by srun {plugin}"


def write(text: str, file: Path | None) -> None:
    """Print the script, or write it to ``file``."""
    if file is None:
        print(text, end="")
        return
    file.write_text(text, encoding="utf-8")
    print(f"written to {file}")
