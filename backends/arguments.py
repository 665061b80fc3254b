"""What the command's arguments must be; a mistake is said before any rank is started."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from minigrad.device import cuda_problem
from minigrad.nets import find_net

from .model_parallel.place import ModelParallel
from .model_parallel.plan import Plan, check_plan, read_plan
from .strategies import find_strategy


def choice(flag: str, given: str, choices: tuple[str, ...]) -> None:
    """Raise ValueError, naming the choices, for any other."""
    if given not in choices:
        raise ValueError(f"unknown {flag} {given!r}; choose one of {', '.join(choices)}")


def check_common(net: str, strategy: str, options: dict[str, Any], seed: int) -> None:
    """What ``train`` and ``prove`` take alike: raise ValueError before any rank is started."""
    find_net(net)
    find_strategy(strategy, options)
    if seed < 0:
        raise ValueError(f"--seed must be 0 or more, got {seed}")


def plan_for(file: Path | None, net: str) -> Plan | None:
    """The plan in ``--plan FILE``; raises ValueError for one that does not fit the net."""
    if file is None:
        return None
    plan = read_plan(file)
    check_plan(plan, find_net(net).build(np.random.default_rng(0)), ModelParallel.kinds_of)
    return plan


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
