"""Batch-norm whose statistics are those of the whole batch, whatever rank holds the samples.

Lecture section: synchronous data parallelism (batch-norm). Lesson: 06_data_parallel.
"""

from __future__ import annotations

from minigrad.module import Module

from ..comm.protocol import Comm

BATCH_NORMS = ("ranks", "synchronised")


def check_batch_norm(given: str) -> str:
    """``given``; raises ValueError, naming the choices, for any other."""
    if given not in BATCH_NORMS:
        raise ValueError(f"unknown batch_norm {given!r}; choose one of {', '.join(BATCH_NORMS)}")
    return given


def synchronise(model: Module, comm: Comm) -> bool:
    """Make every batch-norm of ``model`` use the statistics of all ranks; whether there is any."""
    raise NotImplementedError
