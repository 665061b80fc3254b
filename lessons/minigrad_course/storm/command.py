"""``minigrad storm``: trains on a simulated cluster that fails."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from backends.cli.console import new_console
from backends.cli.curves import check_drawing
from backends.cli.next_command import NextCommand
from backends.cli.run_folder import check_writable
from minigrad.lookup import check_choice

from . import view
from .job import STRATEGIES
from .storm import Storm


def storm(
    seed: Annotated[int, typer.Option(help="seed of the storm, or of the first one", metavar="N", min=0)] = 0,
    seeds: Annotated[
        int | None,
        typer.Option(
            help="number of storms, one for each seed from --seed on", metavar="N", min=1, max=10**6
        ),
    ] = None,
    strategy: Annotated[
        str | None,
        typer.Option(help=f"one of {', '.join(STRATEGIES)} (default: drawn from the seed)", metavar="NAME"),
    ] = None,
    ranks: Annotated[
        int | None,
        typer.Option(
            help="number of ranks (default: 2 or 3, drawn from the seed)", metavar="P", min=1, max=6
        ),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(
            help="places of those faults of the storm that happen, as in 0,2; or none", metavar="LIST"
        ),
    ] = None,
    png: Annotated[
        Path | None, typer.Option(help="picture (default: runs/storm-SEED.png)", metavar="FILE")
    ] = None,
) -> None:
    """Train on a simulated cluster that fails, and go on from checkpoints (status 1: something was wrong).

    A seed draws a tiny job (strategy, ranks, how often it writes checkpoints) and up to 6 faults: a rank is
    killed, also while it saves or loads; a host pauses; a partition; a slow link; a full disk; a loss of
    power, which takes what was not synced; a flipped bit in a checkpoint. The same seed gives the same storm.
    It is safe if every step after every recovery is the undisturbed run's, bit for bit, and live if the
    training ends soon after the last fault. --seeds runs many, and reduces the first that fails to the fewest
    faults.
    """
    if strategy is not None:
        check_choice("--strategy", strategy, STRATEGIES)
    console = new_console()
    settings = {"--strategy": strategy, "--ranks": ranks}
    more = [word for name, value in settings.items() if value is not None for word in (name, str(value))]
    if seeds is None:
        chosen = Storm.of(seed, strategy, ranks)
        places = view.places_of(only, chosen)
        picture = png or Path("runs") / f"storm-{seed}.png"
        check_writable(png, "--png")
        check_drawing()
        safe = view.show_one(chosen if places is None else chosen.only(places), picture, console)
        after_storm(seed, more, safe=safe).show(console)
        sys.exit(0 if safe else 1)
    if only is not None or png is not None:
        raise ValueError("--only and --png are for one storm; leave --seeds out")
    storms = (Storm.of(seed + number, strategy, ranks) for number in range(seeds))
    failed = view.run_many(storms, seeds, console)
    if failed is not None:
        view.report_failure(failed, more, console)
    else:
        NextCommand("minigrad lesson 16", "what fails, and what is left").show(console)
    sys.exit(0 if failed is None else 1)


def after_storm(seed: int, options: Sequence[str], *, safe: bool) -> NextCommand:
    """The storm after this one; of one that was wrong, its fewest faults. Both have the same ``options``."""
    words = ["--seed", str(seed + 1)] if safe else ["--seed", str(seed), "--seeds", "1"]
    purpose = "another job, and other faults" if safe else "the fewest of its faults that do it"
    return NextCommand(shlex.join(["minigrad", "storm", *words, *options]), purpose)
