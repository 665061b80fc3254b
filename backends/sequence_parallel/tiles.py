"""Attention to some of the keys, whose results ``merge`` into that of all keys, in any order.

Lecture section: sequence parallelism. Lesson: 17_sequences. Of a block of keys a query needs its mean of the
values and lse, the logarithm of its sum of exponentials (Milakov and Gimelshein 2018); backward computes the
weights of a block again, from the lse of all keys (Dao 2023, section 3.1). ``fast_tiles.py`` joins the forms
of the host.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from minigrad.device import Array, array_module
from minigrad.faster import faster


class BlockMask(NamedTuple):
    """Which queries see which keys of a block: those that are not after them, and of their own document.

    ``positions`` of queries (n,) and of keys (m,) rise, and are None without a causal mask. ``documents`` of
    queries (B, n) and of keys (B, m) are negative for padding, and None where a row is one document.
    """

    positions: tuple[Any, Any] | None
    documents: tuple[Array, Array] | None

    def allows_none(self) -> bool:
        """Whether all keys are after all queries, or there is nothing on one side."""
        if self.positions is None:
            return False
        queries, keys = self.positions
        return not len(queries) or not len(keys) or bool(keys[0] > queries[-1])

    def allowed(self, shape: tuple[int, ...], like: Array) -> Array:
        """Booleans that broadcast to ``shape`` (B, heads, n, m), on the device of ``like``."""
        xp = array_module(like)
        allowed = xp.ones((1, 1, *shape[2:]), bool)
        if self.positions is not None:
            queries, keys = (xp.asarray(positions) for positions in self.positions)
            allowed = allowed & (keys <= queries[:, None])
        if self.documents is not None:
            queries, keys = (xp.asarray(documents)[:, None] for documents in self.documents)
            allowed = allowed & (queries[..., None] == keys[:, :, None]) & (keys >= 0)[:, :, None]
        return allowed


@faster
def attend_to_block(q: Array, k: Array, v: Array, mask: BlockMask) -> tuple[Array, Array]:
    """The value (B, n, heads, E) and lse (B, heads, n) of queries (B, n, heads, D) that see these keys alone.

    Keys are (B, m, heads, D) and values (B, m, heads, E). A query that sees none has the value 0 and the
    lse -inf.
    """
    xp, scores = array_module(q), scores_of(q, k, mask)
    shift = finite(scores.max(axis=-1)) if scores.size else xp.zeros(scores.shape[:-1], scores.dtype)
    e = xp.exp(scores - shift[..., None])
    total = e.sum(axis=-1)
    with np.errstate(divide="ignore"):  # the logarithm of 0 is -inf
        lse = xp.log(total) + shift
    weights = e / xp.where(total == 0, 1, total)[..., None]
    return (weights @ v.swapaxes(1, 2)).swapaxes(1, 2), lse


def merge(o: Array, lse: Array, other: Array, other_lse: Array) -> tuple[Array, Array]:
    """The value and lse of some keys and of others, from those of each, as ``attend_to_block`` has them."""
    xp = array_module(o)
    both = xp.logaddexp(lse, other_lse)
    whole = finite(both)
    weight, other_weight = (xp.exp(x - whole).swapaxes(1, 2)[..., None] for x in (lse, other_lse))
    return o * weight + other * other_weight, both


@faster
def gradients_of_block(
    g: Array, q: Array, k: Array, v: Array, lse: Array, delta: Array, mask: BlockMask
) -> tuple[Array, Array, Array]:
    """The terms of the gradients of q, k and v that come from these keys.

    g is the gradient of the value of all keys, ``lse`` theirs, and ``delta`` are the ``row_products`` of g
    and this value.
    """
    p, scale = array_module(q).exp(scores_of(q, k, mask) - finite(lse)[..., None]), scale_of(q)
    q, k, v, g = (x.swapaxes(1, 2) for x in (q, k, v, g))  # heads first: a product for each
    ds = scale * p * (g @ v.swapaxes(2, 3) - delta[..., None])
    dq, dk, dv = ds @ k, ds.swapaxes(2, 3) @ q, p.swapaxes(2, 3) @ g
    return dq.swapaxes(1, 2), dk.swapaxes(1, 2), dv.swapaxes(1, 2)


def row_products(g: Array, o: Array) -> Array:
    """The sums (B, heads, n) over the last axis of g o, both (B, n, heads, E)."""
    return (g * o).sum(axis=-1).swapaxes(1, 2)


def scores_of(q: Array, k: Array, mask: BlockMask) -> Array:
    """q k.T / sqrt(D) (B, heads, n, m), -inf where the mask is False."""
    s = scale_of(q) * (q.swapaxes(1, 2) @ k.transpose(0, 2, 3, 1))
    return array_module(q).where(mask.allowed(s.shape, s), s, s.dtype.type(-np.inf))


def scale_of(q: Array) -> float:
    """1 / sqrt(D)."""
    return 1 / math.sqrt(max(q.shape[-1], 1))


def finite(lse: Array) -> Array:
    """``lse``, and 0 where it is -inf, as the scores are: -inf - -inf would be NaN."""
    return array_module(lse).where(lse == -np.inf, lse.dtype.type(0), lse)
