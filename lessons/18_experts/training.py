"""A small transformer with experts, trained on the prose of this course, for lesson 18."""

from typing import NamedTuple

import numpy as np

from minigrad import nn, optim, text
from minigrad.models import transformer
from minigrad.train import fit

LENGTH, WIDTH, EXPERTS, ROWS, STEPS = 64, 32, 8, 16, 100


class WatchedExperts(nn.Experts):
    """Experts that note how many tokens have each as first choice, pass by pass, and the last gates."""

    def __init__(self, *sizes, **settings):
        super().__init__(*sizes, **settings)
        self.loads, self.last = [], np.zeros(0)

    def mixture(self, x, gates, routes):
        self.loads.append(np.bincount(routes.experts[..., 0].ravel(), minlength=len(self.gate.data)))
        self.last = gates.data
        return super().mixture(x, gates, routes)


class Trained(NamedTuple):
    """The share of tokens of each expert (steps, experts), gates on text not seen, and its loss in nats."""

    shares: np.ndarray
    gates: np.ndarray
    loss: float


def trained(penalty):
    """A hundred steps with this factor of the penalty, from the same beginning."""
    prose = text.text(LENGTH)
    net = transformer(
        np.random.default_rng(0), symbols=len(prose.symbols), length=LENGTH, width=WIDTH, blocks=1
    )
    experts = WatchedExperts(WIDTH, EXPERTS, hidden=WIDTH, penalty=penalty, rng=1)
    net[1].feed_forward = experts
    loss = nn.CrossEntropyLoss(ignore_index=text.PADDING, class_axis=-1)
    adam = optim.AdamW(net.parameters(), lr=5e-3)
    fit(net, adam, loss, prose.train[: STEPS * ROWS], batch_size=ROWS)
    loads = np.array(experts.loads[:STEPS])
    test = prose.test[:128]
    last = float(loss(net(test.x), test.y).data)
    return Trained(loads / loads.sum(axis=1, keepdims=True), experts.last, last)
