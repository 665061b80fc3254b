"""A small transformer and its training in float32 and in float16, for lesson 19."""

import numpy as np

from minigrad import Tape, nn, optim, text
from minigrad.data import Batch, minibatches
from minigrad.loss_scale import StaticScale
from minigrad.models import transformer

ROWS, LENGTH, STEPS = 16, 32, 160
PROSE = text.text(LENGTH)
LETTERS = PROSE.references["entropy of letters"]
loss_of = nn.CrossEntropyLoss(ignore_index=text.PADDING, class_axis=-1)


def build(dtype=np.float32):
    """A transformer of two blocks of width 32, always with the same initial weights."""
    rng = np.random.default_rng(0)
    symbols = len(PROSE.symbols)
    return transformer(rng, symbols=symbols, length=LENGTH, width=32, heads=4, blocks=2).to(dtype=dtype)


def first_batch():
    """The first 16 rows, copied: a tape that holds a part of an array counts the whole array."""
    rows = PROSE.train[:ROWS]
    return Batch(rows.x.copy(), rows.y.copy())


def backward(net, batch, seed):
    """The loss of a batch; the parameters get the gradients of ``seed`` times this loss."""
    net.zero_grad()
    with Tape() as tape, np.errstate(over="ignore", invalid="ignore"):
        loss = loss_of(net(batch.x), batch.y)
        tape.backward(loss, seed)
    return loss.item()


def trained(net, share, scale=1.0, precision="float16"):
    """The losses of a training in which each batch is counted as a ``share`` of a larger one.

    Backward starts from share times ``scale``. Float32 copies of the weights, which have ``precision``, get
    the gradient divided by both: the gradient of the larger batch, if all of its parts are like this one.
    Weights of "float32" need no copies, and no digit depends on the seed: it is 1.
    """
    adam = optim.AdamW(net.parameters(), lr=5e-3)
    if precision != "float32":
        adam.with_master_weights(precision, StaticScale(share * scale))
    losses, seed = [], adam.loss_scale
    for batch in [*minibatches(PROSE.train, ROWS, seed=0, epoch=0)][:STEPS]:
        losses.append(backward(net, batch, seed))
        adam.step()
    return np.array(losses)
