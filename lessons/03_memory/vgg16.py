"""VGG-16 (Simonyan and Zisserman 2015, configuration D): counted for any size, built where small."""

from typing import NamedTuple

from minigrad import nn

POOL = "pool"
PLAN = (64, 64, POOL, 128, 128, POOL, 256, 256, 256, POOL, 512, 512, 512, POOL, 512, 512, 512, POOL)
HIDDEN = 4096


class Layer(NamedTuple):
    """A layer: its outputs and its products, multiplications with an addition each, for one image."""

    name: str
    outputs: int
    parameters: int = 0
    products: int = 0


def count(side=224, thinner=1, classes=1000):
    """All layers except the ReLUs, with channels and hidden units divided by ``thinner``."""
    layers, channels, block, place = [], 3, 1, 1
    for item in PLAN:
        if item == POOL:
            side //= 2
            layers.append(Layer(f"pool{block}", channels * side * side))
            block, place = block + 1, 1
        else:
            wide = item // thinner
            weights, outputs = channels * wide * 9, wide * side * side
            layers.append(Layer(f"conv{block}_{place}", outputs, weights + wide, 9 * channels * outputs))
            channels, place = wide, place + 1
    n_in = channels * side * side
    for name, n_out in (("fc6", HIDDEN // thinner), ("fc7", HIDDEN // thinner), ("fc8", classes)):
        layers.append(Layer(name, n_out, (n_in + 1) * n_out, n_in * n_out))
        n_in = n_out
    return layers


def build(rng, side, thinner, classes):
    """The network itself, with a ReLU after every layer that has weights, except the last."""
    layers, channels = [], 3
    for item in PLAN:
        if item == POOL:
            layers.append(nn.MaxPool2d(2))
            side //= 2
        else:
            layers += [nn.Conv2d(channels, item // thinner, 3, padding=1, rng=rng), nn.ReLU()]
            channels = item // thinner
    hidden = HIDDEN // thinner
    layers += [nn.Flatten(), nn.Linear(channels * side * side, hidden, rng=rng), nn.ReLU()]
    layers += [nn.Linear(hidden, hidden, rng=rng), nn.ReLU(), nn.Linear(hidden, classes, rng=rng)]
    return nn.Sequential(*layers)
