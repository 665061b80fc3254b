"""The networks of the lessons, for 28 x 28 digits in ten classes or for text, each with its loss."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from . import nn, ops
from .data import Batch, Dataset
from .lookup import lookup
from .metric import ACCURACY, NATS, Metric
from .mnist import load
from .tensor import Tensor
from .text import PADDING, text
from .work import Loss

Rng = np.random.Generator
DIGIT = (1, 28, 28)  # channels, rows, columns


class Net(NamedTuple):
    """A network by name: how to build it, what it is trained on, and settings that suit it.

    ``sample`` is the shape of an input, and ``datasets`` are the names of those that have such inputs.
    ``lr`` and ``momentum`` are those for ``optimizer``, and ``defaults`` other options of ``minigrad train``
    by name. ``warm_up`` is the number of steps in which the rate rises, where the training is long enough.
    ``sizes`` are keywords of ``build`` that a user may choose.
    """

    build: Callable[..., nn.Module]
    loss: Loss
    lr: float
    momentum: float
    targets: Callable[[np.ndarray], np.ndarray] = np.asarray
    sample: tuple[int, ...] = DIGIT
    metric: Metric = ACCURACY
    datasets: tuple[str, ...] = ("mnist5k", "mnist")
    optimizer: str = "sgd"
    defaults: Mapping[str, Any] = {}
    warm_up: int = 0
    sizes: Mapping[str, int] = {}

    def prepare(self, data: Batch, dtype: Any) -> Batch:
        """``data`` with samples in ``dtype``, if they are no integers, and targets as the loss takes them."""
        targets = self.targets(data.y)
        x = data.x.astype(dtype, copy=False) if data.x.dtype.kind == "f" else data.x
        targets = targets.astype(dtype) if targets.dtype.kind == "f" else targets
        return Batch(x, targets, tokens=data.tokens)

    def data(self) -> Dataset:
        """The net's own data set in the package."""
        return text(self.sizes["length"]) if self.sizes else load(self.datasets[0])

    def resized(self, **sizes: int) -> Net:
        """The net with other ``sizes``, of which ``length`` is that of a sample."""
        sizes = {**self.sizes, **sizes}
        return self._replace(build=partial(self.build, **sizes), sample=(sizes["length"],), sizes=sizes)


# The networks pool before the ReLU: max(x, 0) keeps the order of numbers, so values and gradients are those
# of the usual order, bit for bit, and the ReLU has a quarter of the work.


def mlp(rng: Rng) -> nn.Module:
    """784-128-128-10 with ReLU: 118,282 parameters."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(784, 128, rng=rng),
        nn.ReLU(),
        nn.Linear(128, 128, rng=rng),
        nn.ReLU(),
        nn.Linear(128, 10, rng=rng),
    )


def lenet(rng: Rng) -> nn.Module:
    """Two 3 x 3 convolutions with pooling, two linear layers, after LeCun et al. 1998: 206,922 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1, rng=rng),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1, rng=rng),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(1568, 128, rng=rng),
        nn.ReLU(),
        nn.Linear(128, 10, rng=rng),
    )


def vgg(rng: Rng) -> nn.Module:
    """Pairs of 3 x 3 convolutions between poolings, after Simonyan and Zisserman 2015: 870,634 parameters.

    Weights have the variance 2 / n_in, biases are zero (He et al. 2015): a ReLU halves the mean square of
    what passes, and six layers of the usual third would leave so little that some seeds begin to learn late.
    """
    model = nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1, rng=rng),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1, rng=rng),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1, rng=rng),
        nn.ReLU(),
        nn.Conv2d(64, 64, 3, padding=1, rng=rng),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(3136, 256, rng=rng),
        nn.ReLU(),
        nn.Linear(256, 10, rng=rng),
    )
    for parameter in model.parameters():
        parameter.data[...] *= math.sqrt(6) if parameter.ndim > 1 else 0  # weights were uniform, 1 / (3 n_in)
    return model


def transformer(
    rng: Rng,
    *,
    symbols: int = 92,
    length: int = 64,
    width: int = 128,
    heads: int = 4,
    blocks: int = 2,
    experts: int = 0,
    **mixture: Any,
) -> nn.Module:
    """The scores of the next symbol after each of a row of at most ``length`` (Radford et al. 2019).

    A table of symbols and places, blocks, a norm, and the table again: 416,000 parameters. With ``experts``
    each block has a mixture of so many instead of its feed-forward; the keywords in ``mixture`` are those of
    ``nn.Experts``.
    """
    embedding = nn.TokenEmbedding(symbols, width, length, rng=rng)
    layers = [
        nn.TransformerBlock(
            width,
            heads,
            feed_forward=nn.Experts(width, experts, rng=rng, **mixture) if experts else None,
            rng=rng,
        )
        for _ in range(blocks)
    ]
    return nn.Sequential(embedding, *layers, nn.LayerNorm(width), nn.Unembedding(embedding))


def sigmoid(rng: Rng) -> nn.Module:
    """784-25-10 logistic units, weights uniform within 0.12: the first network of many courses."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 25, rng=rng), nn.Sigmoid(), nn.Linear(25, 10, rng=rng))
    for parameter in model.parameters():
        parameter.data[...] = rng.uniform(-0.12, 0.12, parameter.shape)
    return model


def logistic_cost(outputs: Tensor, targets: Any) -> Tensor:
    """The multi-label logistic cost: summed over the classes, the mean over the samples."""
    return ops.binary_cross_entropy_with_logits(outputs, targets) * outputs.shape[1]


def one_hot(labels: np.ndarray) -> np.ndarray:
    """Labels 0 to 9 as rows of ten zeros and ones."""
    return np.eye(10)[labels]


NETS = {
    "mlp": Net(mlp, ops.cross_entropy, lr=0.1, momentum=0.9),
    "lenet": Net(lenet, ops.cross_entropy, lr=0.05, momentum=0.9),
    "vgg": Net(vgg, ops.cross_entropy, lr=0.02, momentum=0.9),
    "sigmoid": Net(sigmoid, logistic_cost, lr=2.0, momentum=0.0, targets=one_hot),
    "transformer": Net(
        transformer,
        nn.CrossEntropyLoss(ignore_index=PADDING, class_axis=-1),
        lr=2e-3,
        momentum=0.0,
        sample=(64,),
        metric=NATS,
        datasets=("text",),
        optimizer="adamw",
        defaults={"dataset": "text", "epochs": 4, "batch": "32", "clip": 1.0},
        warm_up=20,
        sizes={"symbols": 92, "length": 64, "width": 128, "heads": 4, "blocks": 2},
    ),
}


def find_net(name: str) -> Net:
    """The net called ``name``; raises ValueError naming the choices."""
    return lookup("net", name, NETS)
