"""The weights that a rank holds between steps: in stages 1 and 2 of ZeRO all of them.

Lecture section: data lifetimes. Lesson: 06_data_parallel, by ``gathered_weights.py``. ``gathered_weights.py``
has those of stage 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from minigrad.module import Module
from minigrad.tensor import Parameter

from ...comm.communicator import Communicator
from ..flat import buckets
from .flat_parameter import FlatParameter, Start


class WholeWeights:
    """Every rank holds all weights, in flat parameters of at most ``bucket_bytes``."""

    gathers_in_forward = False

    def __init__(self, *, bucket_bytes: int, overlap: bool):
        self.bucket_bytes, self.overlap = bucket_bytes, overlap
        self.flats: Sequence[Any] = []

    def place(self, model: Module, parameters: list[Parameter], comm: Communicator, start: Start) -> Module:
        """Make the flat parameters, ``flats``; the model whose weights they are."""
        self.flats = [FlatParameter(group, comm, start) for group in buckets(parameters, self.bucket_bytes)]
        return model

    def complete(self, flat: FlatParameter, waiting: list[FlatParameter]) -> list[FlatParameter]:
        """Those of ``waiting`` to reduce once ``flat`` has one more gradient, in one order on all ranks."""
        return list(takewhile(lambda flat: not flat.missing, waiting))

    def end_step(self) -> None:
        """Forget what the update will change."""

    def finalize(self) -> None:
        """Make the weights whole, on every rank, for good."""
