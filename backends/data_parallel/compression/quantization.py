"""Every entry of the gradient is sent, in a few bits.

Lecture section: gradient compression. Lesson: 10_gradient_compression. Sources: Seide, Fu, Droppo, Li and Yu
2014 (1-bit SGD); Karimireddy, Rebjock, Stich and Jaggi 2019 (scaled sign); Alistarh, Grubic, Li, Tomioka and
Vojnovic 2017 (QSGD); Wen et al. 2017 (TernGrad).
"""

from __future__ import annotations

import numpy as np

from minigrad.device import Array, array_module
from minigrad.lookup import at_least_one

from ..flat import FlatLayout
from .bit_packing import pack_bits, pack_bytes, unpack_bits, unpack_bytes
from .compressor import AllGatherCompressor, DrawingCompressor


class OneBit(AllGatherCompressor):
    """The sign of each entry (v >= 0), and for each column the mean of the entries of either sign.

    A column belongs to one output: the weights of a neuron, a filter of a convolution, or a whole vector.
    The residuals of a column and sign add up to 0. ceil(n / 8) bytes, and two numbers for each column.
    """

    def start(self, layout: FlatLayout, rank: int, size: int) -> None:
        super().start(layout, rank, size)
        self.scales = 2 * sum(columns(p.data).shape[1] for p in layout.parameters)

    def levels(self, x: Array, above: Array) -> tuple[Array, Array]:
        """The means of the columns of x (n, m) where ``above`` is true, and elsewhere: (m,) each."""
        xp = array_module(x)
        count = above.sum(axis=0)
        high = xp.where(above, x, 0).sum(axis=0) / xp.maximum(count, 1)
        low = xp.where(above, 0, x).sum(axis=0) / xp.maximum(len(x) - count, 1)
        return high.astype(x.dtype), low.astype(x.dtype)

    def compress(self, v: Array) -> Array:
        parts = [columns(x) for x in self.layout.views(v)]
        scales = [scale for x in parts for scale in self.levels(x, x >= 0)]
        return pack_bytes(array_module(v).concatenate(scales), pack_bits(v >= 0, 1))

    def add(self, payload: Array, total: Array) -> None:
        (scales,) = unpack_bytes(payload, (total.dtype, self.scales))
        above = unpack_bits(payload[scales.nbytes :], 1, total.size).astype(bool)
        start, views = 0, self.layout.views
        for x, mask in zip(map(columns, views(total)), map(columns, views(above)), strict=True):
            high, low = scales[start : start + 2 * x.shape[1]].reshape(2, -1)
            x += array_module(x).where(mask, high, low)
            start += 2 * x.shape[1]


class ScaledSign(AllGatherCompressor):
    """The sign of each entry times the mean |v| of its parameter (EF-signSGD); without feedback it may fail.

    ||C(v) - v||^2 = (1 - ||v||_1^2 / (n ||v||_2^2)) ||v||_2^2. ceil(n / 8) bytes, and one number for each
    parameter. 0 counts as positive.
    """

    def compress(self, v: Array) -> Array:
        means = array_module(v).stack([abs(x).sum() / max(x.size, 1) for x in self.layout.views(v)])
        return pack_bytes(means.astype(v.dtype), pack_bits(v >= 0, 1))

    def add(self, payload: Array, total: Array) -> None:
        (means,) = unpack_bytes(payload, (total.dtype, len(self.layout.parameters)))
        above = unpack_bits(payload[means.nbytes :], 1, total.size).astype(bool)
        views = self.layout.views
        for x, mask, mean in zip(views(total), views(above), means, strict=True):
            x += array_module(x).where(mask, mean, -mean)


class QSGD(AllGatherCompressor, DrawingCompressor):
    """|v| / ||v|| of each parameter, rounded at random to one of ``levels`` without bias.

    E C(v) = v, and E ||C(v) - v||^2 <= min(n / s^2, sqrt(n) / s) ||v||^2 for s levels and n entries; that is
    no contraction for few levels, so there is no error feedback. ceil(log2(2 s + 1)) bits for each entry (the
    paper's Elias code needs fewer where s is small), and one number for each parameter. Each rank draws its
    own numbers, for ``seed``, its number and the step.
    """

    feedback = False

    def __init__(self, *, levels: int = 7, seed: int = 0):
        self.levels, self.seed = at_least_one("levels", levels), seed
        if levels >= 1 << 15:
            raise ValueError(
                f"levels must be below 2^15, got {levels}; more bits than that are no compression"
            )

    @property
    def bits(self) -> int:
        """The number of bits of an entry."""
        return (2 * self.levels).bit_length()

    def scale(self, x: Array) -> Array:
        """The value of the highest level: the 2-norm."""
        return array_module(x).linalg.norm(x.reshape(-1))

    def compress(self, v: Array) -> Array:
        xp = array_module(v)
        scales = xp.stack([self.scale(x) for x in self.layout.views(v)]).astype(v.dtype)
        steps = abs(v)  # in units of a level from here on
        for x, scale in zip(self.layout.views(steps), scales, strict=True):
            x *= self.levels / xp.where(scale > 0, scale, 1)
        # Rounding must not exceed the highest level: |v| may be one bit larger than the norm of v alone.
        numbers = self.generator(self.seed, self.rank, xp).random(v.size, dtype=v.dtype)
        codes = xp.minimum(xp.floor(steps + numbers), self.levels)
        codes = (xp.copysign(codes, v) + self.levels).astype(np.int32)
        return pack_bytes(scales, pack_bits(codes, self.bits))

    def add(self, payload: Array, total: Array) -> None:
        (scales,) = unpack_bytes(payload, (total.dtype, len(self.layout.parameters)))
        codes = unpack_bits(payload[scales.nbytes :], self.bits, total.size)
        steps = (codes - self.levels).astype(total.dtype)
        for x, n, scale in zip(self.layout.views(total), self.layout.views(steps), scales, strict=True):
            x += n * (scale / self.levels)


class TernGrad(QSGD):
    """-1, 0 or 1 times the largest |v| of the parameter, without bias: QSGD of one level.

    The scale is the largest entry instead of the norm, so far more entries are sent. 2 bits for each.
    """

    def __init__(self, *, seed: int = 0):
        super().__init__(levels=1, seed=seed)

    def scale(self, x: Array) -> Array:
        return abs(x).max() if x.size else x.sum()


def columns(x: Array) -> Array:
    """``x`` as a matrix with one column for each output, a view: layers and filters are (outputs, ...)."""
    return x.reshape(-1, 1) if x.ndim < 2 else x.reshape(len(x), -1).T
