"""Networks of layers that make images larger, normalise samples by themselves, and pool to a size."""

import numpy as np

from backends.comm import run_ranks
from backends.laws import trains_like_serial
from minigrad import nn, ops
from minigrad.data import Batch


def decoder(rng):
    """Of images (2, 5, 5)."""
    return nn.Sequential(
        nn.Conv2d(2, 4, 2, padding="same", rng=rng), nn.GroupNorm(2, 4), nn.GELU(),
        nn.MaxPool2d(2, ceil_mode=True), nn.ConvTranspose2d(4, 6, 3, stride=2, groups=2, rng=rng),
        nn.InstanceNorm(6, affine=True), nn.Conv2d(6, 3, 3, padding="same", rng=rng), nn.Upsample(2),
        nn.AvgPool2d(3, stride=2, padding=1, count_include_pad=False), nn.Upsample(2, mode="bilinear"),
        nn.AdaptiveMaxPool2d((5, 4)), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.RMSNorm(12, eps=1e-3),
        nn.Linear(12, 3, rng=rng),
    )  # fmt: skip


def of_signals(rng):
    """Of signals (2, 6)."""
    return nn.Sequential(
        nn.Conv1d(2, 4, 3, padding="same", rng=rng), nn.BatchNorm(4), nn.Tanh(),
        nn.MaxPool1d(3, stride=1, padding=1), nn.AvgPool1d(2, stride=1, padding=1),
        nn.ConvTranspose1d(4, 4, 3, padding=1, groups=2, rng=rng), nn.LayerNorm((4, 7)),
        nn.Flatten(), nn.Linear(28, 5, rng=rng), nn.Tanh(), nn.Linear(5, 3, rng=rng),
    )  # fmt: skip


NETS = {decoder: (2, 5, 5), of_signals: (2, 6)}


def train_like_serial(strategy, build=decoder, ranks=2, sizes=(5, 3)):
    rng = np.random.default_rng(0)
    batches = [Batch(rng.normal(size=(n, *NETS[build])), rng.integers(0, 3, n)) for n in sizes]
    run_ranks(ranks, lambda comm: trains_like_serial(strategy, comm, build, ops.cross_entropy, batches))
