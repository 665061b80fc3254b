"""``--precision`` and ``--loss-scale``: which numbers a command computes with."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import typer

from minigrad.bfloat16 import bfloat16, rounded
from minigrad.data import Batch
from minigrad.lookup import check_choice
from minigrad.loss_scale import DynamicScale, StaticScale
from minigrad.master_weights import PRECISIONS, MasterWeights
from minigrad.models import Net
from minigrad.strategy import Strategy

NAMES = ("float32", *PRECISIONS)


def loss_scale_of(text: str | None) -> StaticScale | None:
    """``--loss-scale``: a new scale; None leaves it to the precision. ValueError for what is no scale."""
    if text is None:
        return None
    if text == "dynamic":
        return DynamicScale()
    try:
        return StaticScale(float(text))
    except ValueError:
        raise ValueError(
            f"--loss-scale must be dynamic, or a number that is positive and finite, got {text!r}"
        ) from None


def checked_precision(context: typer.Context, name: str) -> str:
    """``--precision``; ValueError for an unknown one, and for 16 bits where a --dtype was passed as well."""
    check_choice("--precision", name, names=NAMES)
    source = context.get_parameter_source("dtype")  # which is eager, so it is known
    if name in PRECISIONS and source is not None and source.name == "COMMANDLINE":
        raise ValueError(f"the sixteen bits of {name} have float32 masters; leave --dtype out")
    return name


class Precision(NamedTuple):
    """The numbers of samples, parameters and activations by name, and of 16 bits the ``loss_scale``.

    The names are float32, float64, float16 and bfloat16, as in the notes of model files.
    """

    name: str
    loss_scale: str | None = None

    @property
    def is_half(self) -> bool:
        """Whether the numbers have 16 bits."""
        return self.name in PRECISIONS

    def prepared(self, net: Net, data: Batch) -> Batch:
        """``data`` as ``net`` takes it, with samples of these numbers; bfloat16 ones are rounded float32."""
        if self.name != "bfloat16":
            return net.prepare(data, self.name)
        batch = net.prepare(data, "float32")
        return batch if batch.x.dtype.kind != "f" else Batch(rounded(batch.x), batch.y, tokens=batch.tokens)

    def computing(self) -> AbstractContextManager[Any]:
        """The context in which ops round to these numbers, which bfloat16 alone needs."""
        return bfloat16(self.name == "bfloat16")

    def check(self, strategies: Iterable[Strategy]) -> None:
        """Raise ValueError for a scale that nothing needs, and for strategies that are not exact."""
        if not self.is_half:
            if self.loss_scale is not None:
                raise ValueError(
                    "--loss-scale is for 16 bits, and the precision is float32; add --precision float16, or "
                    "leave --loss-scale out"
                )
            return
        masters = MasterWeights(self.name)
        for strategy in strategies:
            masters.check_gradients(type(strategy).__name__, strategy.traits.equals_serial, None)

    def notes(self, device: str) -> list[str]:
        """What a user may not expect of these numbers, a sentence each."""
        if self.name == "bfloat16" and device == "numpy":
            return ["note: bfloat16 values are rounded, and memory stays float32"]
        return []
