"""Only some entries of the gradient are sent, unrounded; the others accumulate until they are large.

Lecture section: gradient compression. Lesson: 10_gradient_compression. Sources: Strom 2015 (threshold), Aji
and Heafield 2017 (top-k), Stich, Cordonnier and Jaggi 2018 (both k's, with memory).
"""

from __future__ import annotations

import numpy as np

from minigrad.device import Array, array_module

from ..flat import FlatLayout
from .bit_packing import pack_bytes, unpack_bytes
from .compressor import AllGatherCompressor, DrawingCompressor


class Sparsifier(AllGatherCompressor):
    """Sends values with their indices (int32) in the flat vector: 8 bytes for each entry in float32.

    Entries are moved, not rounded, so C(v) and the residual add up to v to the last bit. A ring all-gather
    sends (p - 1) 8 k bytes from each rank, a dense ring all-reduce 2 n (p - 1) / p 4: sparsification pays
    below a density k / n of 1 / p.
    """

    def start(self, layout: FlatLayout, rank: int, size: int) -> None:
        super().start(layout, rank, size)
        if layout.size > np.iinfo(np.int32).max:
            raise ValueError(f"indices of 32 bits reach 2^31 - 1 parameters, the model has {layout.size}")
        self.sent_indices: Array = None  # of the last step

    def choose(self, v: Array) -> Array:
        """The indices of the entries to send, each once."""
        raise NotImplementedError(f"{type(self).__name__} needs a choose method")

    def compress(self, v: Array) -> Array:
        self.sent_indices = self.choose(v).astype(np.int32)
        return pack_bytes(v[self.sent_indices], self.sent_indices)

    def add(self, payload: Array, total: Array) -> None:
        k = payload.nbytes // (total.dtype.itemsize + 4)
        values, indices = unpack_bytes(payload, (total.dtype, k), (np.int32, k))
        total[indices] += values


class Threshold(Sparsifier):
    """Entries with |v| > ``threshold``; the others accumulate until they exceed it. 0 sends all but zeros."""

    def __init__(self, *, threshold: float = 1e-3):
        if not 0 <= threshold < np.inf:
            raise ValueError(f"threshold is a finite size of a gradient, at least 0, got {threshold}")
        self.threshold = threshold

    def choose(self, v: Array) -> Array:
        return array_module(v).flatnonzero(abs(v) > self.threshold)


class TopK(Sparsifier):
    """The k = max(1, round(density n)) entries of largest |v| among all n of the model, ties in any order.

    ||C(v) - v||^2 <= (1 - k/n) ||v||^2.
    """

    def __init__(self, *, density: float = 0.01):
        self.density = check_density(density)

    def choose(self, v: Array) -> Array:
        return largest(abs(v), count_of(self.density, v.size))


class RandomK(Sparsifier, DrawingCompressor):
    """k = max(1, round(density n)) entries at random, the same on all ranks: no indices are sent, 4 k bytes.

    ||C(v) - v||^2 is (1 - k/n) ||v||^2 in expectation. All ranks draw for one ``seed``, and the step.
    """

    def __init__(self, *, density: float = 0.01, seed: int = 0):
        self.density, self.seed = check_density(density), seed

    def choose(self, v: Array) -> Array:
        k = count_of(self.density, v.size)
        indices = self.generator(self.seed, 0).choice(v.size, k, replace=False, shuffle=False)
        return array_module(v).asarray(indices)

    def compress(self, v: Array) -> Array:
        self.sent_indices = self.choose(v)
        return pack_bytes(v[self.sent_indices])

    def add(self, payload: Array, total: Array) -> None:
        total[self.sent_indices] += payload.view(total.dtype)


def check_density(density: float) -> float:
    """``density``; raises ValueError unless it is a share above 0, 1 at most."""
    if not 0 < density <= 1:
        raise ValueError(
            f"density is the share of entries that are sent, above 0 and at most 1, got {density}"
        )
    return density


def count_of(density: float, n: int) -> int:
    """How many of ``n`` entries are sent: at least one."""
    return max(1, round(density * n))


def largest(sizes: Array, k: int) -> Array:
    """The indices of the ``k`` largest of ``sizes``, in any order."""
    xp = array_module(sizes)
    if k >= sizes.size:
        return xp.arange(sizes.size)
    return xp.argpartition(sizes, sizes.size - k)[sizes.size - k :]


def largest_by_sample(v: Array, k: int, sample: float) -> Array:
    """The indices of the ``k`` entries of largest |v|; only entries above a threshold compete.

    ``sample`` is the share of entries, evenly spaced, from which the threshold is estimated, such that half
    as many again as needed exceed it. If fewer than ``k`` do, all entries compete.
    """
    step = int(1 / sample)
    sizes = abs(v[::step])
    above = -(-3 * k // (2 * step)) + 1
    if sizes.size > 2 * above:
        threshold = array_module(v).partition(sizes, sizes.size - above)[sizes.size - above]
        candidates = reaching(v, threshold)
        if candidates.size >= k:
            return candidates[largest(abs(v[candidates]), k)]
    return largest(abs(v), k)


def reaching(v: Array, threshold: Array, block: int = 1 << 16) -> Array:
    """The indices of the entries with |v| >= ``threshold``, by blocks that fit in a cache."""
    xp = array_module(v)
    if xp is not np:
        return xp.flatnonzero(abs(v) >= threshold)
    starts = range(0, v.size, block)
    return np.concatenate(
        [start + np.flatnonzero(abs(v[start : start + block]) >= threshold) for start in starts]
    )
