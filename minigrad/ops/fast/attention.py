"""Attention in tiles of queries and keys, with the online softmax: memory grows with S + T, not with S T.

The softmax of a row needs its largest score and the sum of its exponentials. A tile of keys gives its own
values and, for each query, the logarithm of its own sum (lse); ``merge`` makes of two such results the one of
all their keys (Milakov and Gimelshein 2018; Dao et al. 2022, algorithm 1). Backward computes the weights of a
tile again, from the lse of all keys (Dao 2023, section 3.1).
Lecture section: back-propagation. Lesson: 17_sequences.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np

from ... import loops
from ...device import Array
from ...faster import form_of
from ...pullback import OpResult
from ...tape import once_for_all
from ..attention import attention, self_attention, thirds, transposed
from .attention_loops import write_scores_gradient, write_weights
from .visibility import Visibility

SHORT, LONG = 64, 512  # sides of a tile: queries and keys in forward, keys and queries in backward
LEAST = 32  # of the shorter side where it has a quarter of a row, so that a causal mask leaves out much
SCORES = 1 << 18  # that are computed together, of some heads and samples: they stay in the cache

Part = tuple[slice, slice]


@form_of(attention)
def attention_in_tiles(
    q: Array, k: Array, v: Array, *, causal: bool = False, documents: Any = None, mask: Any = None
) -> OpResult:
    """Backward has q, k, v, the value, and one number for each query of each head."""
    if not can_take(q, k, v):
        return NotImplemented
    visibility = Visibility.of(q, k, v, causal, documents, mask)
    o, lse = attend(q, k, v, visibility)

    def gradients(g: np.ndarray) -> Sequence[np.ndarray]:
        g, into = np.ascontiguousarray(g, q.dtype), [np.zeros(x.shape, x.dtype) for x in (q, k, v)]
        write_gradients(g, q, k, v, lse, products_of_rows(g, o), visibility, into)
        return into

    _, pullback = once_for_all(gradients)
    return o, (pullback(0), pullback(1), pullback(2))


@form_of(self_attention)
def self_attention_in_tiles(
    qkv: Array, *, causal: bool = False, documents: Any = None, mask: Any = None
) -> OpResult:
    """The three gradients are written into one array."""
    q, k, v = thirds(qkv)
    if not can_take(q, k, v):
        return NotImplemented
    visibility = Visibility.of(q, k, v, causal, documents, mask)
    o, lse = attend(q, k, v, visibility)

    def gradient(g: np.ndarray) -> np.ndarray:
        g, d = np.ascontiguousarray(g, q.dtype), np.zeros(qkv.shape, qkv.dtype)
        write_gradients(g, q, k, v, lse, products_of_rows(g, o), visibility, thirds(d))
        return d

    return o, (gradient,)


def can_take(q: Any, k: Any, v: Any) -> bool:
    """Whether these are arrays of the host, all of float32 or all of float64, and none of them is empty."""
    arrays = [type(x) is np.ndarray and x.dtype == q.dtype and x.size > 0 for x in (q, k, v)]
    return all(arrays) and q.dtype.char in "fd" and q.dtype.isnative


def attend(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, visibility: Visibility
) -> tuple[np.ndarray, np.ndarray]:
    """The value (B, S, heads, E) and lse (B, heads, S) of queries (B, S, heads, D) that look at these keys.

    They are what ``merge`` takes, with the axes of the value swapped: where there are more keys, elsewhere.
    """
    o = np.zeros((*q.shape[:3], v.shape[-1]), q.dtype)
    lse = np.full((len(q), q.shape[2], q.shape[1]), -np.inf, q.dtype)
    queries, keys, values, results = (x.swapaxes(1, 2) for x in (q, k, v, o))
    scale, side = scale_of(q), short_side(k.shape[1])
    for part in parts(lse.shape, side * min(LONG, k.shape[1])):
        for rows in cuts(0, q.shape[1], side):
            scaled, first = queries[*part, rows] * scale, True
            whole, whole_lse = results[*part, rows], lse[*part, rows]
            for columns in cuts(0, visibility.end_of_keys(rows, k.shape[1]), LONG):
                allowed = visibility.tile(part, rows, columns)
                if allowed is None:
                    continue
                new = tile(scaled, keys[*part, columns], values[*part, columns], allowed)
                whole[...], whole_lse[...] = new if first else merge(whole, whole_lse, *new)
                first = False
    return o, lse


def tile(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, allowed: np.ndarray | bool
) -> tuple[np.ndarray, np.ndarray]:
    """softmax(q k.T) v (..., n, E), and the logarithm of the softmax's divisor (..., n).

    q (..., n, D) is scaled, k (..., m, D) and v (..., m, E) are some keys. ``allowed`` broadcasts to
    (..., n, m); True stands for all. A query that sees none of them has the value 0 and the lse -inf.
    """
    s = scores(q, k, allowed)
    if loops.available():
        lse = np.empty(s.shape[:-1], s.dtype)
        write_weights(rows_of(s), rows_of(s).view(f"i{s.itemsize}"), lse.reshape(-1))
        return s @ v, lse
    shift = finite(s.max(axis=-1))
    np.exp(s - shift[..., None], out=s)
    total = s.sum(axis=-1)
    with np.errstate(divide="ignore"):  # the logarithm of 0 is -inf
        lse = np.log(total) + shift
    return s @ v / np.where(total == 0, 1, total)[..., None], lse


def merge(
    o: np.ndarray, lse: np.ndarray, other: np.ndarray, other_lse: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The value (..., n, E) and lse (..., n) of all keys, from those of some keys and of all the others."""
    both = np.logaddexp(lse, other_lse)
    whole = finite(both)
    weight, other_weight = np.exp(lse - whole), np.exp(other_lse - whole)
    return o * weight[..., None] + other * other_weight[..., None], both


def write_gradients(
    g: np.ndarray,
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    lse: np.ndarray,
    delta: np.ndarray,
    visibility: Visibility,
    into: Sequence[np.ndarray],
) -> None:
    """Write the gradients of q, k and v into three arrays of zeros, shaped like them.

    g is the gradient of the value of all keys, of which these may be some; ``lse`` is that of all keys, and
    ``delta`` has the ``products_of_rows`` of g and this value.
    """
    gs, queries, keys, values, dq, dk, dv = (x.swapaxes(1, 2) for x in (g, q, k, v, *into))
    scale, lse, side = scale_of(q), finite(lse), short_side(q.shape[1])
    for part in parts(lse.shape, side * min(LONG, q.shape[1])):
        for columns in cuts(0, k.shape[1], side):
            scaled, vv, first = keys[*part, columns] * scale, values[*part, columns], True
            for rows in cuts(visibility.first_query(columns), q.shape[1], LONG):
                allowed = visibility.tile(part, rows, columns)
                if allowed is None:
                    continue
                qq, gg = queries[*part, rows], gs[*part, rows]
                p, ds = tile_weights(gg, qq, scaled, vv, allowed, lse[*part, rows], delta[*part, rows])
                add_product(dq[*part, rows], ds, scaled, first=columns.start == 0)
                add_product(dk[*part, columns], transposed(ds), qq, first)
                add_product(dv[*part, columns], transposed(p), gg, first)
                first = False
            dk[*part, columns] *= scale


def tile_weights(
    g: np.ndarray,
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    allowed: np.ndarray | bool,
    lse: np.ndarray,
    delta: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """The weights (..., n, m) of a tile and the gradients of its scores, from lse and delta of all keys."""
    p, d = scores(q, k, allowed), rows_by_rows(g, v)
    if loops.available():
        write_scores_gradient(rows_of(p), rows_of(d), lse.ravel(), delta.ravel())
    else:
        np.exp(p - lse[..., None], out=p)
        d = p * (d - delta[..., None])
    return p, d


def scores(q: np.ndarray, k: np.ndarray, allowed: np.ndarray | bool) -> np.ndarray:
    """q k.T (..., n, m), and -inf where it is not allowed."""
    s = rows_by_rows(q, k)
    if allowed is not True:
        np.copyto(s, -np.inf, where=~allowed)
    return s


def rows_by_rows(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a b.T (..., n, m), which is contiguous whatever the memory order of the two."""
    return np.matmul(a, transposed(b), out=np.empty((*a.shape[:-1], b.shape[-2]), a.dtype))


def add_product(total: np.ndarray, a: np.ndarray, b: np.ndarray, first: bool) -> None:
    """Add a @ b to ``total``, which is 0 with ``first``."""
    if first:
        np.matmul(a, b, out=total)
    else:
        total += a @ b


def products_of_rows(g: np.ndarray, o: np.ndarray) -> np.ndarray:
    """The sums (B, heads, S) over the last axis of g o: g by p is the gradient of the softmax's divisor."""
    return np.einsum("bsad,bsad->bas", g, o)


def scale_of(q: np.ndarray) -> np.floating[Any]:
    """1 / sqrt(D), in the dtype of q."""
    return q.dtype.type(1 / math.sqrt(q.shape[-1]))


def finite(lse: np.ndarray) -> np.ndarray:
    """``lse``, and 0 where it is -inf, as the scores are: -inf - -inf would be NaN."""
    return np.where(lse == -np.inf, 0, lse)


def rows_of(s: np.ndarray) -> np.ndarray:
    """A contiguous array as a matrix of its rows."""
    return s.reshape(-1, s.shape[-1])


def cuts(start: int, end: int, size: int) -> list[slice]:
    """The numbers from start to end in slices of ``size``."""
    return [slice(i, min(i + size, end)) for i in range(start, end, size)]


def short_side(count: int) -> int:
    """The shorter side of a tile of rows or columns with ``count`` tokens."""
    return min(SHORT, max(LEAST, count // 4))


def parts(shape: tuple[int, ...], scores: int) -> Iterator[Part]:
    """Samples and heads of (B, heads, S) of which each has so many scores in a tile, as many as the cache."""
    heads = max(SCORES // scores, 1)
    samples = max(heads // shape[1], 1)
    return product(cuts(0, shape[0], samples), cuts(0, shape[1], heads))
