"""Laws of backends/laws.py: all strategies train decoders, and nets of signals, like one machine."""

import numpy as np

from backends.comm import run_ranks
from backends.laws import trains_like_serial
from minigrad import ops
from minigrad.data import Batch
from tests.nets import decoder, of_signals

NETS = {decoder: (2, 5, 5), of_signals: (2, 6)}


def train_like_serial(strategy, build=decoder, ranks=2, sizes=(5, 3)):
    rng = np.random.default_rng(0)
    batches = [Batch(rng.normal(size=(n, *NETS[build])), rng.integers(0, 3, n)) for n in sizes]
    run_ranks(ranks, lambda comm: trains_like_serial(strategy, comm, build, ops.cross_entropy, batches))
