"""The checks of the command's arguments; a mistake is reported before any rank is started."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from minigrad import lr_schedules as rates
from minigrad.device import cuda_problem
from minigrad.models import find_net

from ..model_parallel.model_parallel import check_plan_for
from ..model_parallel.plan import Plan, read_plan
from ..partition import check_bounds
from ..pipeline import check_timetable, find_schedule
from ..registry import declaration, find_strategy, load_strategy, read_options
from .parallel import ParallelConfig, pipe_strategies, pipeline_names
from .strategy_flags import options_by_axis


def check_choice(flag: str, value: str, choices: Sequence[str]) -> None:
    """Raise ValueError, naming the choices, for any other value."""
    if value not in choices:
        raise ValueError(f"unknown {flag} {value!r}; choose one of {', '.join(choices)}")


MOST_SAMPLES = 60_000  # in the largest data set


class PipelineFlags(NamedTuple):
    """The flags for pipelines, as they were passed; None, or False, where one was not."""

    schedule: str | None = None
    micro: int | None = None
    chunks: int | None = None
    bounds: str | None = None
    recompute: bool = False


def parallel_config(
    net: str,
    strategy: str,
    option: Iterable[str] | None,
    *,
    data: int,
    pipe: int,
    model: int,
    plan: Path | None,
    pipeline: PipelineFlags,
    flags: Mapping[str, Any],
    samples: int | None = None,
) -> ParallelConfig:
    """How the ranks share ``net``; raises ValueError for what does not fit, before any rank is started.

    ``samples`` is the number of samples in a step over all ranks; None stands for the whole data set.
    """
    find_net(net)
    options, pipe_options = options_by_axis(flags, read_options(option or []), strategy, pipeline.schedule)
    find_strategy(strategy, options)
    declaration(load_strategy(strategy)).check_options(data, options)
    if pipe > 1 and "micro_batches" in options:
        raise ValueError(
            "--option micro_batches takes a pipeline through several times; pass --micro instead"
        )
    config = ParallelConfig(strategy, options, data, pipe, model, plan_for(plan, net))
    return with_pipeline(config, net, pipeline, pipe_options, samples)


def plan_for(file: Path | None, net: str) -> Plan | None:
    """The plan in ``--plan FILE``; raises ValueError for one that does not fit the net."""
    if file is None:
        return None
    plan = read_plan(file)
    check_plan_for(plan, find_net(net).build(np.random.default_rng(0)))
    return plan


def with_pipeline(
    config: ParallelConfig,
    net: str,
    flags: PipelineFlags,
    options: dict[str, Any],
    samples: int | None,
) -> ParallelConfig:
    """The configuration with its pipelines; raises ValueError for a schedule or bounds that are not defined.

    The default is 1F1B with two micro-batches for each rank of a pipeline. Numbers that no timetable of this
    net can have are refused before one is written: it grows with their product.
    """
    schedule, micro, chunks, bounds, recompute = flags
    if schedule in rates.SCHEDULES:
        raise ValueError(
            f"--schedule is the order in a pipeline, and {schedule!r} one of learning rates; pass "
            f"--lr-schedule {schedule} to train, or choose one of {', '.join(pipeline_names())}"
        )
    if config.pipe == 1:
        for name, value in flags._asdict().items():
            if value is not None and value is not False:  # 0 was passed, too
                raise ValueError(f"--{name} is for pipelines; add --pipe 2 or more, or leave it out")
        return config
    layers = len(find_net(net).build(np.random.default_rng(0)).children())
    if config.pipe * (chunks or 1) > layers:
        raise ValueError(
            f"--pipe {config.pipe}{f' --chunks {chunks}' if chunks else ''} needs a layer for each stage, "
            f"and {net} has {layers} layers; take at most {layers} stages"
        )
    check_micro_batches(micro, config, samples)
    cuts = None if bounds is None else stage_bounds(bounds)
    if schedule in pipe_strategies():
        if chunks is not None or recompute or isinstance(cuts, str):
            raise ValueError(
                f"--schedule {schedule} has one stage on each rank, and takes neither --chunks nor "
                "--recompute nor bounds by bytes or time; leave them out, or choose another schedule"
            )
        return replace(config, schedule=schedule, micro=micro, bounds=cuts, pipe_options=options)
    check_choice("schedule", schedule or "1f1b", pipeline_names())
    table = find_schedule(schedule or "1f1b").of(
        config.pipe, 2 * config.pipe if micro is None else micro, chunks
    )
    check_timetable(table)
    cuts = cuts or "bytes"
    check_bounds(cuts, table.stages, layers)
    if cuts == "time" and config.data * config.model > 1:
        raise ValueError(
            "--bounds time is measured by each pipeline for itself, and two would find other bounds; measure "
            "with --data 1 --model 1, and pass the numbers that train prints then, as --bounds 0,3,5"
        )
    return replace(
        config,
        schedule=schedule or "1f1b",
        micro=table.micros,
        chunks=table.chunks,
        bounds=cuts,
        recompute=recompute,
    )


def check_micro_batches(micro: int | None, config: ParallelConfig, samples: int | None) -> None:
    """Raise ValueError for micro-batches most of which would get no sample: of a full MNIST none can."""
    most = max(samples or MOST_SAMPLES, 4 * config.pipe)
    if micro is not None and micro > most:
        raise ValueError(
            f"--micro {micro} cuts a step of {samples or MOST_SAMPLES} samples into more parts than samples; "
            f"take at most {most}"
        )


def stage_bounds(given: str) -> tuple[int, ...] | str:
    """``--bounds``: numbers, bytes or time."""
    if given in ("bytes", "time"):
        return given
    numbers = given.split(",")
    if not all(number.strip().isdigit() for number in numbers):
        raise ValueError(
            "--bounds takes the first layer of each stage and, last, the number of layers, as 0,3,5, or one "
            f"of bytes, time; got {given!r}"
        )
    return tuple(map(int, numbers))


def check_positive(flag: str, given: float | None) -> None:
    """Raise ValueError for a number that is not positive and finite; None was not given."""
    if given is not None and not 0 < given < math.inf:  # NaN too
        raise ValueError(f"{flag} must be a positive number, got {given}")


def check_device(device: str) -> None:
    """Raise RuntimeError, with the way out, where the GPU cannot be used."""
    check_choice("--device", device, ("numpy", "cupy"))
    if device == "cupy" and (problem := cuda_problem()):
        raise RuntimeError(f"--device cupy: {problem}")


def batch_size(given: str) -> int | None:
    """``--batch``: a number of samples, or "all" (None)."""
    if given == "all":
        return None
    if not given.isdigit() or int(given) < 1:
        raise ValueError(f"--batch must be a number of samples of at least 1, or all; got {given!r}")
    return int(given)
