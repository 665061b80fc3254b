"""What strategies hide of their communication, where the two ranks are on two hosts of a slow network.

hidden = (compute + communication - step) / min(compute, communication): 1 where the shorter of the two costs
nothing, 0 where one follows the other.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from time import sleep
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from backends.launch.launch import THREAD_VARIABLES, environment, mpi_problem

LINKS = {"1gbit": 10**9, "100mbit": 10**8}
TARGET = 0.8  # of the smaller of the two, for buckets
PROGRESS = ("thread", "test", "none")
# MPICH's own ways to make progress, or to make room for it, while a rank computes
VARIABLES = {
    "": {},
    "async": {"MPIR_CVAR_ASYNC_PROGRESS": "1"},
    "heavy yield": {"MPIR_CVAR_ENABLE_HEAVY_YIELD": "1"},
}
Figures = dict[str, dict[str, float]]  # peer -> compute, communication, step, in seconds


def over_link(
    link: str,
    arguments: list[str],
    console: Console,
    script: str = str(Path(__file__).with_name("data_parallel.py")),
    hosts: int = 2,
    settings: Mapping[str, dict[str, str]] = VARIABLES,
) -> dict[str, Any]:
    """What ``script`` leaves, one rank on each of ``hosts``, with each of ``settings`` of the environment."""
    sys.path.insert(0, str(Path(__file__).parent.parent))
    from minigrad_course.experiments.hosts import Hosts, problem

    if reason := mpi_problem() or problem():
        console.print(f"--link {link}: {reason}")
        raise typer.Exit(2)
    figures = {}
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "figures.json"
        for setting, variables in settings.items():
            environ = {**environment(hosts), **dict.fromkeys(THREAD_VARIABLES, "1"), **variables}
            environ["MINIGRAD_DATA_PARALLEL"] = str(result)
            with Hosts(Path(folder), LINKS[link], hosts) as built:
                done = subprocess.run(built.mpiexec(hosts, script, *arguments), env=environ, timeout=1800)
            if done.returncode:
                raise typer.Exit(done.returncode)
            figures[setting] = json.loads(result.read_text(encoding="utf-8"))
    return figures


def measure_hidden(comm: Any, work: Any, rounds: int) -> Figures:
    """Medians of a step, of its computation alone and of its communication alone, by peer; on rank 0."""
    from data_parallel import interleaved, seconds
    from data_parallel_peers import Peer, stepper

    from backends.data_parallel import DataParallel
    from backends.data_parallel.bucketed import Bucketed
    from minigrad.data import shares
    from minigrad.serial import Serial

    mine = shares(work.input[0], comm.size)[comm.rank]
    compute = Peer(stepper(work, Serial(), mine)[0], whole=False)
    pause = comm.mpi.bcast(median(seconds(comm, compute, 5) for _ in range(3)))
    made = {"replicated": stepper(work, DataParallel(comm))}
    made |= {f"bucketed, {p}": stepper(work, Bucketed(comm, progress=p)) for p in PROGRESS}
    results = {"compute": compute}
    for peer, (step, backend) in made.items():
        step()
        results[peer] = Peer(step)
        results[f"{peer}: communication"] = Peer(communication(backend, pause))
    times = interleaved(comm, results, rounds)
    return {
        peer: {
            "compute": median(times["compute"]),
            "communication": median(times[f"{peer}: communication"]) - pause,
            "step": median(times[peer]),
        }
        for peer in (made if times else {})
    }


def communication(backend: Any, pause: float) -> Callable[[], float]:
    """What a step of ``backend`` sends, after as long a pause as computing takes; returns 0.

    In the pause a shaped link earns the right to a burst, and it does so while the ranks compute, too.
    """

    def reduce() -> float:
        sleep(pause)
        backend.reduce()
        return 0.0

    return reduce


def hidden_table(title: str, link: str, by_setting: dict[str, Figures]) -> Table:
    table = Table(
        title=f"{title}; two hosts, {link}/s between them, ms",
        caption=f"exposed: step - compute; hidden of the smaller of both, target of buckets >= {TARGET:.0%}",
        caption_justify="left",
    )
    for column in ("", "MPICH's", "compute", "communication", "step", "exposed", "hidden", "met"):
        table.add_column(column, justify="left" if column in ("", "MPICH's") else "right", no_wrap=True)
    for setting, peers in by_setting.items():
        for peer, t in peers.items():
            compute, sending, step = t["compute"], t["communication"], t["step"]
            hidden = (compute + sending - step) / min(compute, sending)
            met = "" if peer == "replicated" else "yes" if hidden >= TARGET else "no"
            cells = [f"{1000 * x:.1f}" for x in (compute, sending, step, step - compute)]
            table.add_row(peer, setting, *cells, f"{hidden:.0%}", met)
    return table
