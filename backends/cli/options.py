"""The options of the commands, as typer reads them; strategies declare further ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from minigrad.lr_schedules import SCHEDULES as RATES
from minigrad.models import NETS
from minigrad.optim import OPTIMIZERS

from ..registry import strategy_names
from .parallel import pipeline_names

DATASETS = ("mnist5k", "mnist")
DTYPES = ("float32", "float64")
STRATEGIES = f"how the ranks of --data train together, one of {', '.join(strategy_names())}"
PIPELINES = "Pipelines, for --pipe of 2 or more"

Data = Annotated[int | None, typer.Option(min=1, help="number of ranks that share each batch", metavar="N")]
Pipe = Annotated[
    int,
    typer.Option(
        min=1, help="number of ranks that each copy of the model is cut into, as a pipeline", metavar="P"
    ),
]
Model = Annotated[int, typer.Option(min=1, help="number of ranks that each layer is split over", metavar="M")]
PlanFile = Annotated[
    Path | None,
    typer.Option(
        "--plan",
        help="JSON or TOML file: how each layer is split (default: least communication)",
        metavar="FILE",
    ),
]
Order = Annotated[
    str | None,
    typer.Option(
        "--schedule", help=f"one of {', '.join(pipeline_names())} (default: 1f1b)", rich_help_panel=PIPELINES
    ),
]
Micro = Annotated[
    int | None,
    typer.Option(help="micro-batches in a step (default: 2 P)", metavar="N", rich_help_panel=PIPELINES),
]
Chunks = Annotated[
    int | None,
    typer.Option(
        help="stages on each rank (default: the schedule's own)",
        metavar="V",
        rich_help_panel=PIPELINES,
    ),
]
Bounds = Annotated[
    str | None,
    typer.Option(
        help="stage boundaries as layer indices (0,3,5), or bytes or time to balance the stages "
        "(default: bytes)",
        rich_help_panel=PIPELINES,
    ),
]
Recompute = Annotated[
    bool,
    typer.Option(
        "--recompute",
        help="keep only the inputs of each stage, and recompute its activations in the backward pass",
        rich_help_panel=PIPELINES,
    ),
]
Oversubscribe = Annotated[
    bool,
    typer.Option("--oversubscribe", help="allow more ranks than cores and memory can hold"),
]
Transport = Annotated[str | None, typer.Option(help="threads or mpi (default: mpi if it is installed)")]
NetName = Annotated[str, typer.Option(help=f"one of {', '.join(NETS)}")]
Options = Annotated[
    list[str] | None, typer.Option("--option", metavar="NAME=VALUE", help="strategy option, repeatable")
]
Json = Annotated[Path | None, typer.Option(help="also write the results to this file")]
Seed = Annotated[int, typer.Option(min=0, help="random seed for weights and sample order")]
Dtype = Annotated[str, typer.Option(help=f"one of {', '.join(DTYPES)}")]
Strategy = Annotated[
    str | None, typer.Option(help=f"{STRATEGIES} (default: serial, for several ranks replicated)")
]

# Of train

DatasetName = Annotated[str, typer.Option(help=f"one of {', '.join(DATASETS)}")]
Device = Annotated[str, typer.Option(envvar="MINIGRAD_DEVICE", help="numpy or cupy")]
Epochs = Annotated[int, typer.Option(min=1, help="number of passes over the training samples")]
BatchSize = Annotated[str, typer.Option(help="number of samples in a step over all ranks, or all")]
Optimizer = Annotated[str, typer.Option(help=f"one of {', '.join(OPTIMIZERS)}")]
Rate = Annotated[
    float | None, typer.Option(help="learning rate (default: the optimizer's own, or the net's)")
]
RateSchedule = Annotated[
    str | None,
    typer.Option(help=f"schedule of the learning rate, one of {', '.join(RATES)} (default: the net's own)"),
]
WarmUp = Annotated[
    int,
    typer.Option(
        min=0,
        help="steps in which the learning rate rises from a tenth",
        metavar="STEPS",
    ),
]
Clip = Annotated[
    float | None,
    typer.Option(help="scale gradients down to this joint norm", metavar="NORM"),
]
TraceFile = Annotated[
    Path | None,
    typer.Option(help="write a trace, for ui.perfetto.dev and minigrad trace", metavar="FILE"),
]
