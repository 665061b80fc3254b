"""Random masks that depend on a sample and a step, not on who computes the sample.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``ops/dropout.py``. Philox gives
the random numbers of a key and a counter at once, without those before (Salmon, Moraes, Dror and Shaw 2011).
Each sample has another counter, at which its numbers begin, so any rank finds them alone.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np

from .device import Array

Places = range | np.ndarray
"""Numbers of samples in the batch of which they are a part."""

WORDS = 4  # numbers of 64 bits in a block of Philox, and so twice as many of 32 bits
RANGE = 2**32
IN_STEP, BY_HAND = 0, 1


class Mask(Protocol):
    """What dropout asks which elements it keeps."""

    def keep(self, shape: tuple[int, ...], p: float) -> Array:
        """A bool array of that shape, False with probability ``p``."""
        ...


class RandomMask(NamedTuple):
    """The elements that a layer keeps in one call: a function of these attributes, of shape and of p alone.

    ``path`` are the positions of the layer in the Sequentials around it, ``call`` counts its calls in one
    forward pass. ``places`` are those of the samples in the whole batch of the ``step``. They are None
    outside of a step, where ``step`` counts the layer's calls, and the samples have the places 0, 1, ...
    """

    seed: int
    path: tuple[int, ...] = ()
    call: int = 0
    step: int = 0
    places: Places | None = None

    def keep(self, shape: tuple[int, ...], p: float) -> np.ndarray:
        """A bool array, False with probability ``p``; the first axis are samples, or each sample's rows.

        Raises ValueError where the first axis is no multiple of the samples.
        """
        rows = shape[0] if shape else 1
        places = range(rows) if self.places is None else self.places
        n = len(places)
        if rows % n if n else rows:
            raise ValueError(
                f"dropout draws a mask for each of the {n} samples of the pass, and the first axis of shape "
                f"{shape} is {rows}, no multiple of {n}; transpose the samples to the first axis before "
                "dropout, and back after it"
            )
        size = math.prod(shape) // n if n else 0  # of a sample
        blocks = -(-size // (2 * WORDS))
        key = np.array([self.seed, path_key(self.path)], np.uint64)
        origin = IN_STEP if self.places is not None else BY_HAND
        threshold = np.uint32(min(round(p * RANGE), RANGE - 1))
        keep = np.empty((n, size), bool)
        for run, place in consecutive(places):
            counter = np.array([place * blocks, origin, self.step, self.call], np.uint64)
            cipher = np.random.Philox(key=key, counter=counter)
            bits = cipher.random_raw(len(keep[run]) * blocks * WORDS).view(np.uint32)
            bits = bits.reshape(len(keep[run]), blocks * 2 * WORDS)
            np.greater_equal(bits[:, :size], threshold, out=keep[run])
        return keep.reshape(shape)


def path_key(path: tuple[int, ...]) -> int:
    """64 bits that differ from path to path, the same in every process; 0 for no path."""
    digest = hashlib.blake2b(repr(path).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") if path else 0


def consecutive(places: Places) -> Iterator[tuple[slice, int]]:
    """Slices of consecutive places, each with its first place."""
    cuts = [] if isinstance(places, range) and places.step == 1 else np.flatnonzero(np.diff(places) != 1) + 1
    for start, stop in pairwise([0, *(int(cut) for cut in cuts), len(places)]):
        if start < stop:
            yield slice(start, stop), int(places[start])
