"""Checks of settings that are integers, such as strides: ValueError for anything else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Pair = int | tuple[int, int]


def pair(value: Pair, name: str, least: int) -> tuple[int, int]:
    """A setting for rows and columns, passed as one integer or two, each at least ``least``."""
    if type(value) is int and value >= least:
        return value, value
    both = value if np.iterable(value) else (value, value)
    if not are_integers(both, 2, least):
        raise ValueError(f"{name} must be one or two integers of at least {least}, got {value}")
    rows, columns = both
    return int(rows), int(columns)


def one(value: Any, name: str, least: int) -> int:
    """A setting for the one axis of a signal, passed as an integer or as a sequence of one."""
    return integer(value[0] if are_integers(value, 1, least) else value, name, least)


def integer(value: Any, name: str, least: int) -> int:
    """A setting that is one integer, at least ``least``."""
    if type(value) is int and value >= least:
        return value
    if not are_integers((value,), 1, least):
        raise ValueError(f"{name} must be an integer of at least {least}, got {value}")
    return int(value)


def are_integers(values: Any, count: int, least: float) -> bool:
    """Whether ``values`` are ``count`` integers, NumPy's among them, of at least ``least``."""
    return (
        type(values) is not int  # in a third of the time
        and isinstance(values, (tuple, Sequence, np.ndarray))
        and len(values) == count
        and all([isinstance(v, (int, np.integer)) and v >= least for v in values])
    )
