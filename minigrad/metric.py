"""What a trained net is judged by, on data that it has not seen: images by classes, text by nats a symbol."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from .data import Batch
from .module import Module
from .nn import CrossEntropyLoss
from .text import PADDING
from .train import accuracy, mean_loss


class Metric(NamedTuple):
    """A number for a model and a data set, and how it is written in a table and while a net trains."""

    name: str
    plural: str
    measure: Callable[[Module, Batch], float]
    show: Callable[[float], str]
    progress: Callable[[float], str]


def nats_a_symbol(model: Module, data: Batch) -> float:
    """The mean loss of the symbols of texts; padding, which has the label -1, counts for nothing."""
    return mean_loss(model, CrossEntropyLoss(ignore_index=PADDING, class_axis=-1), data)


def in_nats_and_bits(nats: float) -> str:
    """A loss for reading: ``2.333 nats (3.366 bits) a symbol``."""
    return f"{nats:.3f} nats ({nats / math.log(2):.3f} bits) a symbol"


def percent_right(share: float) -> str:
    """An accuracy for reading: ``97.1 % right``."""
    return f"{100 * share:.1f} % right"


ACCURACY = Metric("accuracy", "accuracies", accuracy, "{:.2%}".format, percent_right)
NATS = Metric("loss", "losses", nats_a_symbol, in_nats_and_bits, in_nats_and_bits)
