"""A training on a few digits, in which ranks are killed or not."""

import numpy as np

from minigrad import ops, optim
from minigrad.mnist import load
from minigrad.models import find_net
from minigrad.train import fit

RANKS, SAMPLES, BATCH, EPOCHS = 4, 300, 20, 2
STEPS = SAMPLES // BATCH * EPOCHS


def training(backend=None, on_step=None):
    """A LeNet in double precision on a few digits: its history and the model."""
    net = find_net("lenet")
    model = net.build(np.random.default_rng(0)).to(dtype=np.float64)
    model = model if backend is None else backend.place(model)
    optimizer = optim.SGD(model.parameters(), 0.05, momentum=0.9)
    data = net.prepare(load("mnist5k").train[:SAMPLES], "float64")
    history = fit(
        model,
        optimizer,
        ops.cross_entropy,
        data,
        backend=backend,
        epochs=EPOCHS,
        batch_size=BATCH,
        on_step=on_step,
    )
    return history, model
