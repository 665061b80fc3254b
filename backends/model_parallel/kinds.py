"""The ways to split each class of layer, by name; and the layers that leave what comes cut as it is.

Lecture section: model parallelism. Lesson: 11_model_parallel. ``spatial.py`` has the ways to split images.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from minigrad import nn
from minigrad.module import Module

from ..comm.protocol import Comm
from .activation import Cut
from .channels import (
    ChannelConv2d,
    FilterConv2d,
    GatheredConv2d,
    GroupedConv2d,
    PerChannel,
    SplitFlatten,
)
from .classes import ClassLinear
from .dropout import SplitDropout
from .layer import Elementwise, SplitLayer
from .neurons import ColumnLinear, GatheredLinear, RowLinear
from .normalised import ChannelBatchNorm

ELEMENTWISE = (nn.ReLU, nn.LeakyReLU, nn.GELU, nn.Sigmoid, nn.Tanh)

Maker = Callable[[Any, Comm, Cut | None], SplitLayer]
"""Makes a split layer of a serial one, for these ranks, behind a layer whose features are cut in this way."""

KINDS: Mapping[type[Module], Mapping[str, Maker]] = {
    nn.Linear: {"column": ColumnLinear, "row": RowLinear, "gathered": GatheredLinear, "classes": ClassLinear},
    nn.Conv2d: {
        "filters": FilterConv2d,
        "channels": ChannelConv2d,
        "groups": GroupedConv2d,
        "gathered-filters": GatheredConv2d,
    },
}
UNNAMED: Mapping[type[Module], Maker] = {
    **dict.fromkeys(ELEMENTWISE, Elementwise),
    nn.Dropout: SplitDropout,
    nn.Flatten: SplitFlatten,
    nn.MaxPool2d: PerChannel,
    nn.AvgPool2d: PerChannel,
    nn.BatchNorm: ChannelBatchNorm,
}
"""Layers that the plan does not name and that need not gather what comes cut; all others become ``Whole``."""


def entry(table: Mapping[type[Module], Any], layer: Module, otherwise: Any) -> Any:
    """What the table has for the layer's class."""
    return next((found for kind, found in table.items() if isinstance(layer, kind)), otherwise)
