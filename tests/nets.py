"""Networks, batches and optimizers that several files of laws train with: small, and each unusual in its way.

The first ones are sequences of 7 or 8 layers for pipelines; the others are for ranks that share the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from minigrad import nn, ops, optim
from minigrad.data import Batch
from minigrad.tensor import Parameter

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
    """Linear layers with dropout and batch-norm, and with a frozen bias."""
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


def grouped(ps):
    """AdamW in which only matrices decay; the others have three times the rate and betas of their own."""
    matrices, others = optim.decay_groups(ps, 0.3)
    return optim.AdamW([others | {"lr": 0.03, "betas": (0.5, 0.9)}, matrices], 0.01, eps=1e-3)


OPTIMIZERS = {
    "momentum": lambda ps: optim.SGD(ps, 0.1, momentum=0.9, weight_decay=0.01),
    "adam": lambda ps: optim.Adam(ps, 0.01),
    # These two sum norms over ranks, in another order than serially.
    "clipped": lambda ps: optim.SGD(ps, 0.5, momentum=0.9).clipped(0.05),
    "lars": lambda ps: optim.LARS(ps, 1.0).clipped(0.5),
    "groups": lambda ps: grouped(ps).clipped(0.05),
}


class Forked(nn.Module):
    """A net with a tied, an unused and a frozen parameter."""

    def __init__(self, rng):
        self.first = nn.Linear(6, 5, rng=rng)
        self.tied = nn.Linear(5, 5, rng=rng)
        self.unused = nn.Linear(5, 5, rng=rng)
        self.last = nn.Linear(5, 3, rng=rng)
        self.first.weight.requires_grad = False

    def forward(self, x):
        h = ops.tanh(self.first(x.reshape(-1, 6)))
        return self.last(ops.tanh(self.tied(ops.tanh(self.tied(h)))))


def convolutional(rng):
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1, rng=rng),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(3, 3, rng=rng),
    )


def odd(rng):
    """Convolution and linear layers of odd sizes, with a tied and a frozen parameter."""
    model = nn.Sequential(
        nn.Conv2d(1, 3, (2, 3), padding=1, rng=rng),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(27, 7, rng=rng),
        nn.Tanh(),
        tied := nn.Linear(7, 7, rng=rng),
        nn.Tanh(),
        tied,
        nn.Linear(7, 3, rng=rng),
    )
    vars(tied)["bias"].requires_grad = False
    return model


def normalised(rng):
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1, rng=rng), nn.BatchNorm(3), nn.Flatten(), nn.Linear(18, 3, rng=rng)
    )


def normalised_mlp(rng):
    return nn.Sequential(nn.Flatten(), nn.Linear(6, 5, rng=rng), nn.BatchNorm(5), nn.Linear(5, 3, rng=rng))


class Reusing(nn.Module):
    """Odd sizes; a layer used twice, a weight of two modules, a frozen one, an unused layer."""

    def __init__(self, rng):
        self.scale = Parameter(rng.normal(size=5))
        self.first = nn.Linear(6, 5, rng=rng)
        self.unused = nn.Linear(5, 4, rng=rng)
        self.twice = nn.Linear(5, 5, rng=rng)
        self.mirror = nn.Linear(5, 5, rng=rng)
        self.last = nn.Linear(5, 3, rng=rng)
        self.first.weight.requires_grad = False
        self.mirror.weight = self.twice.weight

    def forward(self, x):
        h = ops.tanh(self.first(x.reshape(-1, 6)) * self.scale)
        h = ops.tanh(self.twice(ops.tanh(self.twice(h))))
        return self.last(ops.tanh(self.mirror(h)))


class Alternating(nn.Module):
    """Uses a layer in every other forward only."""

    def __init__(self, rng):
        self.always = nn.Linear(6, 3, rng=rng)
        self.sometimes = nn.Linear(6, 3, rng=rng)
        self.turn = 0

    def forward(self, x):
        self.turn += 1
        x = x.reshape(-1, 6)
        return self.always(x) + self.sometimes(x) if self.turn % 2 else self.always(x)


def decoder(rng):
    """A net for images (2, 5, 5)."""
    return nn.Sequential(
        nn.Conv2d(2, 4, 2, padding="same", rng=rng), nn.GroupNorm(2, 4), nn.GELU(),
        nn.MaxPool2d(2, ceil_mode=True), nn.ConvTranspose2d(4, 6, 3, stride=2, groups=2, rng=rng),
        nn.InstanceNorm(6, affine=True), nn.Conv2d(6, 3, 3, padding="same", rng=rng), nn.Upsample(2),
        nn.AvgPool2d(3, stride=2, padding=1, count_include_pad=False), nn.Upsample(2, mode="bilinear"),
        nn.AdaptiveMaxPool2d((5, 4)), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.RMSNorm(12, eps=1e-3),
        nn.Linear(12, 3, rng=rng),
    )  # fmt: skip


def of_signals(rng):
    """A net for signals (2, 6)."""
    return nn.Sequential(
        nn.Conv1d(2, 4, 3, padding="same", rng=rng), nn.BatchNorm(4), nn.Tanh(),
        nn.MaxPool1d(3, stride=1, padding=1), nn.AvgPool1d(2, stride=1, padding=1),
        nn.ConvTranspose1d(4, 4, 3, padding=1, groups=2, rng=rng), nn.LayerNorm((4, 7)),
        nn.Flatten(), nn.Linear(28, 5, rng=rng), nn.Tanh(), nn.Linear(5, 3, rng=rng),
    )  # fmt: skip


def sample_of(build: Build) -> tuple[int, ...]:
    first, *_ = build(np.random.default_rng(0)).parameters()
    return (2, 4, 4) if first.ndim == 4 else (4,)


def batches_of(sizes: Sequence[int], sample: Sequence[int] = (4,), seed: int = 0) -> list[Batch]:
    """Samples are normal numbers; images are channels-last in memory, as a model's entry makes them."""
    rng = np.random.default_rng(seed)
    pairs = [(rng.normal(size=(n, *sample[1:], *sample[:1])), rng.integers(0, 3, n)) for n in sizes]
    return [Batch(np.moveaxis(x, -1, 1), y) for x, y in pairs]


def small_images_of(sizes: Sequence[int], seed: int = 0) -> list[Batch]:
    """Batches of images (1, 2, 3)."""
    return batches_of(sizes, (1, 2, 3), seed)
