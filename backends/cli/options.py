"""The options that several commands take, as typer reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from minigrad.nets import NETS
from minigrad.optim import OPTIMIZERS
from minigrad.schedules import SCHEDULES as RATES

from ..data_parallel.compression import COMPRESSORS
from ..data_parallel.compression.compressed import COMPRESSOR
from ..pipeline import SCHEDULES
from ..registry import strategy_names

DATASETS = ("mnist5k", "mnist")
DTYPES = ("float32", "float64")
STRATEGIES = f"how the ranks share the work, one of {', '.join(strategy_names())}"
PIPELINES = "Pipelines, for --pipe of 2 or more"
SERVER = "Parameter servers, for --strategy server"
COMPRESSED = "Compressed gradients, for --strategy compressed"

Data = Annotated[int | None, typer.Option(help="ranks that share each batch", metavar="N")]
Pipe = Annotated[
    int, typer.Option(help="ranks that hold the layers of each copy, as a pipeline", metavar="P")
]
Model = Annotated[int, typer.Option(help="ranks that share each layer of a copy", metavar="M")]
PlanFile = Annotated[
    Path | None,
    typer.Option(
        "--plan", help="which layer is split how, JSON or TOML (default: what moves least)", metavar="FILE"
    ),
]
Order = Annotated[
    str | None,
    typer.Option(
        "--schedule", help=f"one of {', '.join(SCHEDULES)} (default: 1f1b)", rich_help_panel=PIPELINES
    ),
]
Micro = Annotated[
    int | None,
    typer.Option(help="micro-batches in a step (default: 2 P)", metavar="N", rich_help_panel=PIPELINES),
]
Chunks = Annotated[
    int | None,
    typer.Option(
        help="stages on each rank (default: as the schedule has)", metavar="V", rich_help_panel=PIPELINES
    ),
]
Bounds = Annotated[
    str | None,
    typer.Option(
        help="where stages begin, and where the last one ends, as 0,3,5; or such that they are alike in "
        "bytes (the default) or in time",
        rich_help_panel=PIPELINES,
    ),
]
Recompute = Annotated[
    bool,
    typer.Option(
        "--recompute",
        help="hold only what comes into a stage, and compute it again",
        rich_help_panel=PIPELINES,
    ),
]
Servers = Annotated[
    int | None,
    typer.Option(help="ranks that hold the parameters (default: 1)", metavar="S", rich_help_panel=SERVER),
]
Staleness = Annotated[
    int | None,
    typer.Option(
        help="steps that a worker may be ahead of the slowest; 0 is synchronous (default: any number, each "
        "gradient is applied as it comes)",
        metavar="STEPS",
        rich_help_panel=SERVER,
    ),
]
Compress = Annotated[
    str | None,
    typer.Option(help=f"one of {', '.join(COMPRESSORS)} (default: {COMPRESSOR})", rich_help_panel=COMPRESSED),
]
Density = Annotated[
    float | None,
    typer.Option(
        help="share of the gradient's entries that is sent (default: the compressor's own)",
        metavar="SHARE",
        rich_help_panel=COMPRESSED,
    ),
]
Oversubscribe = Annotated[
    bool, typer.Option("--oversubscribe", help="start more ranks than this machine has cores and memory for")
]
Transport = Annotated[str | None, typer.Option(help="threads or mpi (default: mpi where installed)")]
NetName = Annotated[str, typer.Option(help=f"one of {', '.join(NETS)}")]
Options = Annotated[
    list[str] | None, typer.Option("--option", metavar="NAME=VALUE", help="of the strategy; can be repeated")
]
Json = Annotated[Path | None, typer.Option(help="also write the figures to this file")]
Seed = Annotated[int, typer.Option(help="of the weights and of the order of the samples")]
Dtype = Annotated[str, typer.Option(help=f"one of {', '.join(DTYPES)}")]
Strategy = Annotated[
    str | None, typer.Option(help=f"{STRATEGIES} (default: serial, for several ranks replicated)")
]

# Of train

DatasetName = Annotated[str, typer.Option(help=f"one of {', '.join(DATASETS)}")]
Device = Annotated[str, typer.Option(envvar="MINIGRAD_DEVICE", help="numpy or cupy")]
Epochs = Annotated[int, typer.Option(min=1)]
BatchSize = Annotated[str, typer.Option(help="samples per step over all ranks, or all")]
Optimizer = Annotated[str, typer.Option(help=f"one of {', '.join(OPTIMIZERS)}")]
Rate = Annotated[
    float | None, typer.Option(help="learning rate (default: the optimizer's own, or the net's)")
]
RateSchedule = Annotated[
    str | None, typer.Option(help=f"of the learning rate: {', '.join(RATES)} (default: the net's own)")
]
WarmUp = Annotated[
    int, typer.Option(min=0, help="steps in which the rate rises from a tenth of it", metavar="STEPS")
]
Clip = Annotated[float | None, typer.Option(help="scale gradients down to this joint norm", metavar="NORM")]
TraceFile = Annotated[
    Path | None,
    typer.Option(help="who did what when, for ui.perfetto.dev and minigrad trace", metavar="FILE"),
]
