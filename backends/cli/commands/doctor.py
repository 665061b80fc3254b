"""``minigrad doctor``: examines this machine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ...launch.launch import load_mpi, size_under_mpiexec
from ...launch.ping_pong import measure_links
from .. import doctor as health
from .. import options
from ..console import new_console
from ..link_report import as_values, conclusion, link_table
from ..next_command import NextCommand
from ..run_folder import check_writable, write_json

app = typer.Typer(add_completion=False)


@app.command()
def doctor(
    hosts: Annotated[
        Path | None, typer.Option(help="measure the links between the hosts in this file", metavar="FILE")
    ] = None,
    json: options.Json = None,
) -> None:
    """Check what this machine offers, and how to install what is missing.

    As ranks of mpiexec or srun, or with --hosts, it measures the link of each pair of ranks, too.
    """
    check_writable(json)
    links = None
    if (size_under_mpiexec() or 1) > 1:
        comm = load_mpi()()
        links = measure_links(comm)
        comm.close()
        if comm.rank > 0:
            return
    elif hosts is not None:
        links = health.links_of_hosts(hosts)
    findings = [] if hosts is not None else health.examine()
    console = new_console()
    if findings:
        console.print(health.report(findings, console.width), soft_wrap=True)
    if links is not None:
        console.print(link_table(links))
        console.print(conclusion(links), highlight=False, soft_wrap=True)
    if json is not None:
        values = {"findings": [finding._asdict() for finding in findings]}
        write_json(json, values | ({} if links is None else as_values(links)))
    if any(f.needed and f.remedy for f in findings):
        sys.exit(1)
    if links is not None:
        NextCommand("minigrad lesson 05", "what a message costs on a link").show(console)
    else:
        NextCommand("minigrad train --data 2", "train on two ranks").show(console)
