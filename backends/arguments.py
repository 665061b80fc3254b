"""What the command's arguments must be; a mistake is said before any rank is started."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from minigrad import schedules as rates
from minigrad.device import cuda_problem
from minigrad.nets import find_net

from .data_parallel.compression import Compressed
from .data_parallel.compression.compressed import COMPRESSOR, find_compressor
from .data_parallel.server_rules import check_servers, rule_for
from .layout import Layout
from .model_parallel.model_parallel import ModelParallel
from .model_parallel.plan import Plan, check_plan, read_plan
from .partition import check_bounds
from .pipeline import SCHEDULES, check_timetable, find_schedule
from .stale_rates import find_stale_rate
from .strategies import find_strategy, read_options, settings_of


def choice(flag: str, given: str, choices: tuple[str, ...]) -> None:
    """Raise ValueError, naming the choices, for any other."""
    if given not in choices:
        raise ValueError(f"unknown {flag} {given!r}; choose one of {', '.join(choices)}")


MOST_SAMPLES = 60_000  # in the largest data set

# Flags that are options of one strategy, by its name
FLAGS = {"servers": "server", "staleness": "server", "compress": "compressed", "density": "compressed"}


class Asked(NamedTuple):
    """What was asked of the pipelines; None, or False, was not."""

    schedule: str | None = None
    micro: int | None = None
    chunks: int | None = None
    bounds: str | None = None
    recompute: bool = False


def layout_for(
    net: str,
    strategy: str,
    option: Iterable[str] | None,
    *,
    data: int,
    pipe: int,
    model: int,
    plan: Path | None,
    asked: Asked,
    flags: Mapping[str, Any],
    samples: int | None = None,
) -> Layout:
    """How the ranks share ``net``; raises ValueError for what does not fit, before any rank is started.

    ``samples`` are those of a step over all ranks, None all there are.
    """
    find_net(net)
    find_strategy(strategy)
    options = with_flags(strategy, read_options(option or []), flags)
    find_strategy(strategy, options)
    check_data(strategy, options, data)
    if pipe > 1 and "micro_batches" in options:
        raise ValueError(
            "--option micro_batches takes a pipeline through several times; pass --micro instead"
        )
    layout = Layout(strategy, options, data, pipe, model, plan_for(plan, net))
    return with_pipelines(layout, net, asked, samples)


def with_flags(strategy: str, options: dict[str, Any], flags: Mapping[str, Any]) -> dict[str, Any]:
    """The options, and the flags that were given; ValueError for those of another strategy, or said twice."""
    given = {name: value for name, value in flags.items() if value is not None}
    for name, value in given.items():
        if strategy != FLAGS[name]:
            raise ValueError(
                f"--{name} is for --strategy {FLAGS[name]}, and the strategy here is {strategy}; "
                "choose that one, or leave the flag out"
            )
        if name in options:
            raise ValueError(
                f"--{name} {value} and --option {name}={options[name]} set the same; leave one of them out"
            )
    return options | given


def check_data(strategy: str, options: Mapping[str, Any], ranks: int) -> None:
    """Raise ValueError where the ranks of the data axis cannot be servers and workers, or compress so."""
    if strategy == "server":
        servers = options.get("servers", 1)
        check_servers(servers, ranks)
        if ranks < 2:
            raise ValueError(
                "--strategy server needs a server and a worker, got 1 rank; pass --data 2 or more"
            )
        rule_for(ranks - servers, options.get("staleness"), options.get("softsync"))
        find_stale_rate(options.get("stale_rate", "naive"))
    if strategy == "compressed":
        own = settings_of(Compressed)
        settings = {name: value for name, value in options.items() if name not in own}
        find_compressor(options.get("compress", COMPRESSOR), settings)


def plan_for(file: Path | None, net: str) -> Plan | None:
    """The plan in ``--plan FILE``; raises ValueError for one that does not fit the net."""
    if file is None:
        return None
    plan = read_plan(file)
    check_plan(plan, find_net(net).build(np.random.default_rng(0)), ModelParallel.splits_of)
    return plan


def with_pipelines(layout: Layout, net: str, asked: Asked, samples: int | None) -> Layout:
    """The layout with what was asked; raises ValueError for a schedule or bounds that are not defined.

    The default is 1F1B with two micro-batches for each rank of a pipeline. Numbers that no timetable of this
    net can have are refused before one is written: it grows with their product.
    """
    schedule, micro, chunks, bounds, recompute = asked
    if schedule in rates.SCHEDULES:
        raise ValueError(
            f"--schedule is the order in a pipeline, and {schedule!r} one of learning rates; pass "
            f"--lr-schedule {schedule} to train, or choose one of {', '.join(SCHEDULES)}"
        )
    if layout.pipe == 1:
        for name, value in asked._asdict().items():
            if value is not None and value is not False:  # a 0 was asked for, too
                raise ValueError(f"--{name} is for pipelines; add --pipe 2 or more, or leave it out")
        return layout
    found = find_schedule(schedule or "1f1b")
    layers = len(find_net(net).build(np.random.default_rng(0)).children())
    if layout.pipe * (chunks or 1) > layers:
        raise ValueError(
            f"--pipe {layout.pipe}{f' --chunks {chunks}' if chunks else ''} needs a layer for each stage, "
            f"and {net} has {layers} layers; take at most {layers} stages"
        )
    check_micro_batches(micro, layout, samples)
    table = found.of(layout.pipe, 2 * layout.pipe if micro is None else micro, chunks)
    check_timetable(table)
    cuts = stage_bounds("bytes" if bounds is None else bounds)
    check_bounds(cuts, table.stages, layers)
    if cuts == "time" and layout.data * layout.model > 1:
        raise ValueError(
            "--bounds time is measured by each pipeline for itself, and two would find other bounds; measure "
            "with --data 1 --model 1, and pass the numbers that train tells then, as --bounds 0,3,5"
        )
    return replace(
        layout,
        schedule=found.name,
        micro=table.micros,
        chunks=table.chunks,
        bounds=cuts,
        recompute=recompute,
    )


def check_micro_batches(micro: int | None, layout: Layout, samples: int | None) -> None:
    """Raise ValueError for micro-batches most of which would get no sample: of a full MNIST none can."""
    most = max(samples or MOST_SAMPLES, 4 * layout.pipe)
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


def check_seed(seed: int) -> None:
    """Raise ValueError for a number that no generator takes."""
    if seed < 0:
        raise ValueError(f"--seed must be 0 or more, got {seed}")


def check_positive(flag: str, given: float | None) -> None:
    """Raise ValueError for a number that is not positive and finite; None was not given."""
    if given is not None and not 0 < given < math.inf:  # NaN too
        raise ValueError(f"{flag} must be a positive number, got {given}")


def check_device(device: str) -> None:
    """Raise RuntimeError, with the way out, where the GPU cannot be used."""
    choice("--device", device, ("numpy", "cupy"))
    if device == "cupy" and (problem := cuda_problem()):
        raise RuntimeError(f"--device cupy: {problem}")


def batch_size(given: str) -> int | None:
    """``--batch``: a number of samples, or "all" (None)."""
    if given == "all":
        return None
    if not given.isdigit() or int(given) < 1:
        raise ValueError(f"--batch must be a number of samples of at least 1, or all; got {given!r}")
    return int(given)
