"""A batch script for Slurm: a command of minigrad on several nodes, which goes on from its checkpoints.

Slurm sends the script SIGTERM before the time limit. The script passes it on to minigrad, whose ranks save
and end. Then it puts the job back into the queue, and the job resumes from the newest checkpoint.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from operator import mul
from pathlib import Path

from ..words import counted
from .strategy_flags import option

TIME = re.compile(r"(?:(?P<days>\d+)-)?(?P<first>\d+)(?::(?P<second>\d+))?(?::(?P<third>\d+))?")
UNITS = ((60,), (60, 1), (3600, 60, 1))  # of minutes, minutes:seconds and hours:minutes:seconds

SLACK = 60  # seconds by which Slurm may send a signal too early, says its manual

TEXT = """\
#!/bin/bash
# {nodes}, {tasks} on each: {ranks}, each with {cpus}.
#SBATCH --job-name=minigrad
#SBATCH --nodes={n.nodes}
#SBATCH --ntasks-per-node={n.tasks}
#SBATCH --cpus-per-task={n.cpus}
{limit}# The output; after a restart it goes on in the same file.
#SBATCH --output=minigrad-%j.out
#SBATCH --open-mode=append
{extra}{restart}
# Every node needs this Python under the same path, as on a shared file system.
{environment}
# minigrad starts the ranks itself, {starts}. Each takes as many threads
# for its matrix products as it has CPUs; OMP_NUM_THREADS, if it is set, says otherwise.
{run}"""

LIMIT = """\
# The time limit: {duration}.
#SBATCH --time={n.time}
"""

RESTART = """\
# {n.notice} s before the time limit this script gets SIGTERM. If a node fails, Slurm starts the job again.
#SBATCH --signal=B:TERM@{n.notice}
#SBATCH --requeue
"""

ONCE = """\
# Without --checkpoint there is nothing to go on from, so Slurm does not start the job again.
#SBATCH --no-requeue
"""

RUN_ONCE = "exec {command}\n"

RUN = """\
checkpoints={folder}
newest() {{ printf '%s\\n' "$checkpoints"/step-* | sort -V | tail -n 1; }}
before=$(newest)
resume=({first})
if [ -e "$before" ]; then resume=(--resume "$checkpoints"); fi

trap 'ending=1; [ -z "$training" ] || kill -TERM "$training"' TERM
{command} "${{resume[@]}}" &
training=$!
wait "$training"; status=$?
while [ -n "$ending" ] && kill -0 "$training" 2> /dev/null; do wait "$training"; done
if [ -n "$ending" ]; then wait "$training"; status=$?; fi

# Back into the queue, if the time limit ended it and it has a newer checkpoint than at its start.
if [ -n "$ending" ] && [ "$status" -ne 0 ]; then
    if [ "$(newest)" = "$before" ]; then
        echo "no checkpoint was written in this time: raise --time, or write more often (--every)" >&2
    else
        echo "the time limit is near: the job goes back into the queue, and resumes from $(newest)"
        scontrol requeue "$SLURM_JOB_ID"
    fi
fi
exit "$status"
"""


@dataclass(frozen=True)
class BatchScript:
    """A job of ``nodes`` x ``tasks`` ranks with ``cpus`` each; ``words`` are those of minigrad's command.

    ``time`` is the time limit as Slurm writes it (None: the partition's), ``notice`` the seconds before it at
    which the command is asked to end. With ``checkpoint``, the folder that the command writes, a job that the
    limit ended goes back into the queue; its first start resumes from ``resume``, if that is given. ``extra``
    are more options of sbatch, such as "--partition=long". Raises ValueError for a time that Slurm cannot
    read, or too short for the notice.
    """

    words: Sequence[str] = ()
    nodes: int = option(1, "number of nodes", min=1)
    tasks: int = option(1, "number of ranks on each node", "--tasks-per-node", min=1)
    cpus: int = option(1, "number of CPUs of each rank", "--cpus-per-task", min=1)
    time: str | None = option(
        None, "time limit as of sbatch, as 2:00:00 (default: the partition's)", metavar="TIME"
    )
    notice: int = option(60, "seconds before the limit at which training is to end", metavar="S", min=1)
    checkpoint: Path | None = None
    resume: Path | None = None
    extra: list[str] | None = option(
        None, "another option of sbatch, as --partition=long; repeatable", "--sbatch", metavar="OPTION"
    )

    def __post_init__(self) -> None:
        early = self.notice + SLACK
        if self.time is not None and seconds_of(self.time) <= early and self.checkpoint is not None:
            raise ValueError(
                f"--time {self.time} is {in_words(seconds_of(self.time))}, and Slurm may ask the job to end "
                f"{early} s before; pass a longer --time, or a shorter --notice"
            )
        for word in self.extra or ():
            if not word.startswith("-") or "\n" in word:
                raise ValueError(f"--sbatch takes an option of sbatch, as --partition=long; got {word!r}")

    @property
    def ranks(self) -> int:
        return self.nodes * self.tasks

    def text(self, starts: str) -> str:
        """The script; ``starts`` says in words by what minigrad starts the ranks."""
        command = shlex.join(["minigrad", *self.words])
        if self.checkpoint is None:
            run = RUN_ONCE.format(command=command)
        else:
            first = "" if self.resume is None else f"--resume {shlex.quote(str(self.resume))}"
            run = RUN.format(folder=shlex.quote(str(self.checkpoint)), first=first, command=command)
        limit = "" if self.time is None else LIMIT.format(n=self, duration=in_words(seconds_of(self.time)))
        return TEXT.format(
            n=self,
            nodes=counted(self.nodes, "node"),
            tasks=counted(self.tasks, "task"),
            ranks=counted(self.ranks, "rank"),
            cpus=counted(self.cpus, "CPU"),
            limit=limit,
            extra="".join(f"#SBATCH {shlex.quote(word)}\n" for word in self.extra or ()),
            restart=(ONCE if self.checkpoint is None else RESTART).format(n=self),
            environment=environment(),
            starts=starts,
            run=run,
        )


def seconds_of(time: str) -> int:
    """The seconds of a time as Slurm writes it: "90" are minutes, "2:00" minutes, "2:00:00" and "1-12" hours.

    Raises ValueError for any other text, and for no time at all.
    """
    match = TIME.fullmatch(time)
    numbers = [int(number) for number in (match.group("first", "second", "third") if match else ()) if number]
    days = match and match["days"]
    units = UNITS[-1 if days else len(numbers) - 1]
    seconds = 86400 * int(days or 0) + sum(map(mul, numbers, units))
    if not match or not seconds:
        raise ValueError(
            f"--time {time!r} is no time limit; write minutes, hours:minutes:seconds or days-hours, as "
            "90, 2:00:00 or 1-12"
        )
    return seconds


def in_words(seconds: int) -> str:
    """A duration: "2 h", "1 min 30 s"."""
    hours, rest = divmod(seconds, 3600)
    parts = ((hours, "h"), (rest // 60, "min"), (rest % 60, "s"))
    return " ".join(f"{number} {unit}" for number, unit in parts if number)


def environment() -> str:
    """The line that puts this Python's folder, which has the command minigrad, before others."""
    folder = Path(sys.executable).parent
    activate = folder / "activate"
    if activate.exists():
        return f". {shlex.quote(str(activate))}"
    return f'export PATH={shlex.quote(str(folder))}:"$PATH"'
