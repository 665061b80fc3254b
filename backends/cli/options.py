"""The options that ``train`` and ``prove`` share, and their checks, which are made before a rank starts.

Strategies declare further options (strategy_flags.py); those of one command stand in its own settings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from minigrad import lr_schedules
from minigrad.lookup import check_choice
from minigrad.models import find_net

from ..launch.launch import check_room, choose_transport, world_size
from ..model_parallel.plan import check_plan, read_plan
from ..partition import check_bounds
from ..pipeline import check_timetable, find_schedule
from ..pipeline.schedule_file import read_schedule, schedule_of
from ..registry import class_of, find_strategy, load_strategy, read_options, strategy_names
from ..sequence_parallel.split_tokens import FORMS
from .net_settings import NetSettings
from .parallel import ParallelConfig, pipe_strategies, pipeline_names
from .strategy_flags import option, options_by_axis

MOST_SAMPLES = 60_000  # in the largest data set
DTYPES = ("float32", "float64")
EXPERT_PARALLEL = "expert-parallel"  # the strategy whose ranks hold different experts


def checked_by(check: Callable[[Any], object]) -> Callable[[Any], Any]:
    """A callback of typer: ``check`` raises ValueError for a value that the option cannot have."""

    def callback(value: Any) -> Any:
        if value is not None:
            check(value)
        return value

    return callback


def choice(default: str, flag: str, names: Sequence[str], **settings: Any) -> Any:
    """An option that is one of these names."""
    check = checked_by(partial(check_choice, flag, names=names))
    return option(default, f"one of {', '.join(names)}", callback=check, **settings)


def positive(flag: str, help: str, **settings: Any) -> Any:
    """An option that is a positive and finite number; None by default."""

    def check(value: float) -> None:
        if not 0 < value < math.inf:  # NaN too
            raise ValueError(f"{flag} must be a positive number, got {value}")

    return option(None, help, callback=checked_by(check), **settings)


ranks_option = partial(option, rich_help_panel="Ranks")
pipeline_option = partial(option, rich_help_panel="Pipelines, for --pipe of 2 or more")


@dataclass(frozen=True)
class ParallelOptions(NetSettings):
    """The net, and how the ranks share it."""

    data: int | None = ranks_option(None, "number of ranks that share each batch (default: 1)", min=1)
    pipe: int = ranks_option(1, "number of ranks in each pipeline", metavar="P", min=1)
    sequence: int = ranks_option(1, "number of ranks that share the tokens of each row", min=1)
    sequence_form: str | None = ranks_option(
        None,
        "how tokens of --sequence see one another: ring, keys and values go round, or ulysses, an all-to-all "
        "over heads (default: ring)",
    )
    model: int = ranks_option(1, "number of ranks that each layer is split over", metavar="M", min=1)
    plan: Path | None = ranks_option(
        None, "JSON or TOML file: how each layer is split (default: least communication)"
    )
    split_tokens: bool = ranks_option(
        False, "split the tokens between the products of a transformer over --model", "--split-tokens"
    )
    expert_parallel: bool = ranks_option(
        False,
        "share the experts over the ranks of --data, as --strategy expert-parallel",
        "--expert-parallel",
    )
    strategy: str | None = ranks_option(
        None,
        f"how the ranks of --data train together, one of {', '.join(strategy_names())} "
        "(default: serial for one rank, replicated for several)",
    )
    option: list[str] | None = ranks_option(
        None, "an option of the strategy, repeatable", metavar="NAME=VALUE"
    )
    transport: str | None = ranks_option(
        None,
        "threads, mpi, or nccl: MPI whose GPUs sum by NCCL, which was never tried on two GPUs (default: mpi "
        "where it is installed)",
    )
    oversubscribe: bool = ranks_option(
        False, "allow more ranks than cores and memory can hold", "--oversubscribe"
    )
    schedule: str | None = pipeline_option(None, f"one of {', '.join(pipeline_names())} (default: 1f1b)")
    schedule_file: Path | None = pipeline_option(
        None, "JSON file: the instructions of each rank, instead of --schedule, --micro, --chunks"
    )
    micro: int | None = pipeline_option(None, "micro-batches in a step (default: 2 P)")
    chunks: int | None = pipeline_option(
        None, "stages on each rank (default: the schedule's own)", metavar="V"
    )
    bounds: str | None = pipeline_option(
        None,
        "stage boundaries as layer indices (0,3,5), or time or bytes to balance the stages (default: time, "
        "and bytes with --model)",
        metavar="BOUNDS",
    )
    recompute: bool = pipeline_option(
        False,
        "keep only the inputs of each stage, and recompute its activations in the backward pass",
        "--recompute",
    )

    def configure(
        self, flags: Mapping[str, Any], samples: int | None, one_rank: str = "serial"
    ) -> dict[str, Any]:
        """The sizes of the net, ``transport`` and ``parallel`` of a run; ValueError for what does not fit.

        ``samples`` is the number of samples in a step over all ranks; None stands for the whole data set.
        ``one_rank`` is the default strategy of a single rank on the data axis.
        """
        ranks = world_size(self.data, self.model, self.pipe, self.sequence)
        data = ranks // (self.pipe * self.sequence * self.model)
        transport = choose_transport(self.transport, ranks)
        check_room(ranks, transport, self.oversubscribe)
        strategy = self.strategy or (one_rank if data == 1 else "replicated")
        strategy = self.of_experts(strategy)
        sizes = self.own_sizes()
        net = self.sized_net.build(np.random.default_rng(0))
        form = self.form_of_tokens()
        options, pipe_options, sequence_options = options_by_axis(
            flags, read_options(self.option or []), strategy, self.schedule, self.sequence
        )
        find_strategy(strategy, options)
        class_of(load_strategy(strategy)).declaration.check_options(data, options)
        if self.pipe > 1 and "micro_batches" in options:
            raise ValueError(
                "--option micro_batches takes a pipeline through several times; pass --micro instead"
            )
        if self.split_tokens:
            self.check_text("split-tokens")
            if self.model == 1:
                raise ValueError("--split-tokens is for --model of 2 or more; leave it out, or add --model 2")
        plan = None if self.plan is None else read_plan(self.plan)
        if plan is not None:
            check_plan(plan, net)
        pipeline = self.pipeline(len(net.children()), samples, pipe_options)
        pipeline |= {"split_tokens": self.split_tokens, "sequence": self.sequence}
        pipeline |= {"sequence_form": form, "sequence_options": sequence_options}
        parallel = ParallelConfig(strategy, options, data, self.pipe, self.model, plan, **pipeline)
        return {**sizes, "transport": transport, "parallel": parallel}

    def form_of_tokens(self) -> str:
        """The name of ``--sequence-form``; ValueError for an unknown one, and where there are no tokens."""
        if self.sequence_form is not None:
            if self.sequence_form == "megatron":
                raise ValueError(
                    "tokens between layers are split over the ranks of --model; pass --model 2 --split-tokens"
                )
            check_choice("sequence form", self.sequence_form, tuple(FORMS))
            if self.sequence == 1:
                raise ValueError(
                    "--sequence-form is for --sequence of 2 or more; leave it out, or add --sequence 2"
                )
        if self.sequence > 1 and not find_net(self.net).sizes:
            raise ValueError(
                f"--sequence splits rows of tokens, and {self.net} has none; choose --net transformer"
            )
        return self.sequence_form or "ring"

    def of_experts(self, strategy: str) -> str:
        """``strategy``, or the one of ``--expert-parallel``; raises ValueError where this does not fit."""
        if self.expert_parallel and self.strategy not in (None, EXPERT_PARALLEL):
            raise ValueError(
                f"--expert-parallel is how --data trains together, and so is --strategy {self.strategy}; "
                "leave one of them out"
            )
        strategy = EXPERT_PARALLEL if self.expert_parallel else strategy
        if strategy == EXPERT_PARALLEL and self.experts is None:
            raise ValueError("--expert-parallel shares experts; pass --experts 4")
        return strategy

    def pipeline(self, layers: int, samples: int | None, options: dict[str, Any]) -> dict[str, Any]:
        """The settings of the pipelines; raises ValueError for a schedule or bounds that are not defined.

        The default is 1F1B with two micro-batches for each rank of a pipeline. Numbers that no timetable of
        this net can have are refused before one is written: its size grows with their product.
        """
        if self.schedule in lr_schedules.SCHEDULES:
            raise ValueError(
                f"--schedule is the order in a pipeline, and {self.schedule!r} one of learning rates; pass "
                f"--lr-schedule {self.schedule} to train, or choose one of {', '.join(pipeline_names())}"
            )
        if self.pipe == 1:
            for name in ("schedule", "schedule_file", "micro", "chunks", "bounds", "recompute"):
                value = getattr(self, name)
                if value is not None and value is not False:  # --micro 0 is a value, too
                    flag = f"--{name.replace('_', '-')}"
                    raise ValueError(f"{flag} is for pipelines; add --pipe 2 or more, or leave it out")
            return {}
        written = None if self.schedule_file is None else self.description(self.schedule_file)
        numbers = {"micro": self.micro, "chunks": self.chunks} if written is None else written
        micro, chunks = numbers["micro"], numbers["chunks"]
        if self.pipe * (chunks or 1) > layers:
            more = f" --chunks {self.chunks}" if self.chunks else f" with {chunks} chunks" if chunks else ""
            raise ValueError(
                f"--pipe {self.pipe}{more} needs a layer for each stage, "
                f"and {self.net} has {layers} layers; take at most {layers} stages"
            )
        most = max(samples or MOST_SAMPLES, 4 * self.pipe)
        if micro is not None and micro > most:
            what = "--micro" if written is None else f'{self.schedule_file}: "micro"'
            raise ValueError(
                f"{what} {micro} cuts a step of {samples or MOST_SAMPLES} samples into more parts than "
                f"samples; take at most {most}"
            )
        bounds = self.stage_bounds()
        if written is None and self.schedule in pipe_strategies():
            if self.chunks is not None or self.recompute or isinstance(bounds, str):
                raise ValueError(
                    f"--schedule {self.schedule} has one stage on each rank, and takes neither --chunks nor "
                    "--recompute nor bounds by bytes or time; leave them out, or choose another schedule"
                )
            return {"schedule": self.schedule, "micro": self.micro, "bounds": bounds, "pipe_options": options}
        bounds = bounds or ("time" if self.model == 1 else "bytes")
        if written is None:
            name = self.schedule or "1f1b"
            check_choice("schedule", name, pipeline_names())
            schedule = find_schedule(name)
        else:
            name, schedule = written["name"], schedule_of(written)
        table = schedule.of(self.pipe, 2 * self.pipe if micro is None else micro, chunks)
        check_timetable(table)
        check_bounds(bounds, table.stages, layers)
        if bounds == "time" and self.model > 1:
            raise ValueError(
                f"--bounds time measures whole layers, and --model {self.model} splits them; measure with "
                "--model 1, and pass the numbers that train then prints, as --bounds 0,3,5"
            )
        return {
            "schedule": name,
            "micro": table.micros,
            "chunks": table.chunks,
            "timetable": written,
            "bounds": bounds,
            "recompute": self.recompute,
        }

    def description(self, file: Path) -> dict[str, Any]:
        """What a schedule file says; ValueError where options say it too, or for another number of ranks."""
        for name in ("schedule", "micro", "chunks"):
            if getattr(self, name) is not None:
                raise ValueError(f"--{name} and --schedule-file {file} set the same; leave one of them out")
        description = read_schedule(file)
        ranks = len(description["ranks"])
        if ranks != self.pipe:
            raise ValueError(
                f"the schedule file {file} needs --pipe {ranks}, got --pipe {self.pipe}; pass --pipe {ranks}"
            )
        return description

    def stage_bounds(self) -> tuple[int, ...] | str | None:
        """``--bounds`` as numbers, as "bytes" or "time", or None."""
        if self.bounds in (None, "bytes", "time"):
            return self.bounds
        numbers = self.bounds.split(",")
        if not all(number.strip().isdecimal() for number in numbers):
            raise ValueError(
                "--bounds takes the first layer of each stage and, last, the number of layers, as 0,3,5, or "
                f"one of bytes, time; got {self.bounds!r}"
            )
        return tuple(map(int, numbers))
