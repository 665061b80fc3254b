"""Networks of 7 or 8 layers, optimizers and batches that pipelines train with."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from minigrad import nn, ops, optim
from minigrad.data import Batch

Build = Callable[[np.random.Generator], nn.Module]


def mlp(rng):
    """Layers 0, 2, 4, 5 and 7 are trained; the layer in the middle has a part that is not used."""
    return nn.Sequential(
        nn.Linear(4, 6, rng=rng),
        nn.Tanh(),
        nn.Linear(6, 5, rng=rng),
        nn.Sigmoid(),
        Unused(5, rng=rng),
        nn.Linear(5, 7, rng=rng),
        nn.Tanh(),
        nn.Linear(7, 3, rng=rng),
    )


class Unused(nn.Module):
    """One of two layers is not used."""

    def __init__(self, n, *, rng):
        self.used, self.other = nn.Linear(n, n, rng=rng), nn.Linear(n, n, rng=rng)

    def forward(self, x):
        return ops.tanh(self.used(x))


def dropping(rng):
    """The same with dropout and batch-norm, and with a frozen bias."""
    model = nn.Sequential(
        nn.Linear(4, 6, rng=rng),
        nn.BatchNorm(6),
        nn.Dropout(0.3, rng=np.random.default_rng(int(rng.integers(99)))),
        nn.Tanh(),
        nn.Linear(6, 5, rng=rng),
        nn.Dropout(0.2, rng=np.random.default_rng(int(rng.integers(99)))),
        nn.Sigmoid(),
        nn.Linear(5, 3, rng=rng),
    )
    vars(model[4])["bias"].requires_grad = False
    return model


def images(rng):
    return nn.Sequential(
        nn.Conv2d(2, 3, 3, padding=1, rng=rng),
        nn.Tanh(),
        nn.Conv2d(3, 4, 3, padding=1, rng=rng),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16, 3, rng=rng),
    )


def tied(rng):
    """Layers 2, 4 and 6 have one weight, and the biases of 2 and 4 are one."""
    layers = [nn.Linear(5, 5, rng=rng) for _ in range(3)]
    layers[1].weight = layers[2].weight = layers[0].weight
    layers[1].bias = layers[0].bias
    return nn.Sequential(
        nn.Linear(4, 5, rng=rng),
        nn.Tanh(),
        layers[0],
        nn.Tanh(),
        layers[1],
        nn.Sigmoid(),
        layers[2],
        nn.Linear(5, 3, rng=rng),
    )


def frozen(layers: int, build: Build = mlp) -> Build:
    """The model whose first ``layers`` layers are frozen."""

    def made(rng):
        model = build(rng)
        for layer in vars(model)["layers"][:layers]:
            for parameter in layer.parameters():
                parameter.requires_grad = False
        return model

    return made


MODELS = {
    "mlp": mlp,
    "images": images,
    "tied": tied,
    "frozen first": frozen(1),
    "frozen but the last": frozen(7),
    "frozen images": frozen(3, images),
    "dropping": dropping,  # not for schedules that copy layers
}
OPTIMIZERS = {
    "momentum": lambda ps: optim.SGD(ps, 0.1, momentum=0.9, weight_decay=0.01),
    "adam": lambda ps: optim.Adam(ps, 0.01),
    # These two sum norms over ranks, in another order than serially.
    "clipped": lambda ps: optim.SGD(ps, 0.5, momentum=0.9).clipped(0.05),
    "lars": lambda ps: optim.LARS(ps, 1.0).clipped(0.5),
}


def sample_of(build: Build) -> tuple[int, ...]:
    first, *_ = build(np.random.default_rng(0)).parameters()
    return (2, 4, 4) if first.ndim == 4 else (4,)


def batches_of(sizes: Sequence[int], sample: Sequence[int] = (4,)) -> list[Batch]:
    """Samples are normal numbers; images are channels-last in memory, as a model's entry makes them."""
    rng = np.random.default_rng(0)
    pairs = [(rng.normal(size=(n, *sample[1:], *sample[:1])), rng.integers(0, 3, n)) for n in sizes]
    return [Batch(np.moveaxis(x, -1, 1), y) for x, y in pairs]
