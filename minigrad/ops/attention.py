"""Attention: each token of a sequence takes a mean of the values of the tokens that it may see.

Lecture section: back-propagation. Lesson: 17_sequences.

>>> from minigrad import ops
>>> ops.attention(*[[[[[1.0]], [[2.0]]]]] * 3).shape
(1, 2, 1, 1)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..op import Array, OpResult, alike, array_module, faster, floating, half_in_single, once, op, shape_of
from .softmax import largest


@op
@half_in_single
@faster
def attention(
    q: Array, k: Array, v: Array, *, causal: bool = False, documents: Any = None, mask: Any = None
) -> OpResult:
    """softmax(q k.T / sqrt(D)) v of queries (B, S, heads, D), keys (B, T, heads, D), values (B, T, heads, E).

    The value is (B, S, heads, E) (Vaswani et al. 2017). With ``causal`` query i sees keys 0 to i.
    ``documents`` (B, S) numbers the document of each token: tokens see their own document alone, and padding,
    a negative number, sees nothing and is seen by nobody. ``mask``, booleans that broadcast to
    (B, heads, S, T), is True where a query may see a key. A query that sees nobody gives 0, and has no
    gradient. A key or value that is not finite may make queries NaN that do not see it, as 0 NaN is NaN.
    Raises ValueError where shapes do not fit.
    """
    return weighted_values(q, k, v, causal=causal, documents=documents, mask=mask)


@op
@half_in_single
@faster
def self_attention(qkv: Array, *, causal: bool = False, documents: Any = None, mask: Any = None) -> OpResult:
    """``attention`` of the same tokens: qkv (B, S, heads, 3 D) has queries, then keys, then values.

    The value is (B, S, heads, D). Raises ValueError where shapes do not fit.
    """
    o, pullbacks = weighted_values(*thirds(qkv), causal=causal, documents=documents, mask=mask)
    return o, (lambda g: array_module(g).concatenate([pullback(g) for pullback in pullbacks], axis=-1),)


def weighted_values(
    q: Array, k: Array, v: Array, *, causal: bool, documents: Any, mask: Any
) -> tuple[Array, tuple[Callable[[Array], Array], ...]]:
    """The formula of ``attention`` and its three gradients."""
    check_shapes(shape_of(q), shape_of(k), shape_of(v))
    q, k = alike(q, k)
    q, k, v = (x.swapaxes(1, 2) for x in (q, k, floating(v, q)))  # heads first: a product for each
    allowed = visible(q, k, causal=causal, documents=documents, mask=mask)
    scale = 1 / math.sqrt(max(q.shape[-1], 1))
    p = masked_softmax(scale * (q @ transposed(k)), allowed)

    def scores_gradient(g: Array) -> Array:
        d = g.swapaxes(1, 2) @ transposed(v)
        return scale * p * (d - (d * p).sum(axis=-1, keepdims=True))

    ds = once(scores_gradient)
    return (p @ v).swapaxes(1, 2), (
        lambda g: (ds(g) @ k).swapaxes(1, 2),
        lambda g: (transposed(ds(g)) @ q).swapaxes(1, 2),
        lambda g: (transposed(p) @ g.swapaxes(1, 2)).swapaxes(1, 2),
    )


def thirds(qkv: Array) -> tuple[Array, ...]:
    """Views of queries, keys and values (B, S, heads, D); raises ValueError where they are none."""
    shape = shape_of(qkv)
    if len(shape) != 4 or shape[-1] % 3:
        raise ValueError(f"self_attention takes queries, keys and values as (B, S, heads, 3 D), got {shape}")
    size = shape[-1] // 3
    return tuple(qkv[..., i * size : (i + 1) * size] for i in range(3))


def masked_softmax(scores: Array, allowed: Array) -> Array:
    """The softmax along the last axis of the scores that are allowed; rows without any are 0."""
    xp = array_module(scores)
    scores = xp.where(allowed, scores, -np.inf)
    top = largest(scores, (-1,))
    e = xp.exp(scores - xp.where(top == -np.inf, 0, top))  # -inf - -inf would be NaN
    total = e.sum(axis=-1, keepdims=True)
    return e / xp.where(total == 0, 1, total)


def visible(q: Array, k: Array, *, causal: bool, documents: Any, mask: Any) -> Array:
    """Which query of q (B, heads, S, D) sees which key of k (B, heads, T, D); it broadcasts to the scores."""
    xp, rows, columns = array_module(q), q.shape[2], k.shape[2]
    allowed = xp.ones((1, 1, rows, columns), bool)
    if causal:
        allowed = xp.arange(columns) <= xp.arange(rows)[:, None]
    if documents is not None:
        documents = checked_documents(xp.asarray(documents), q.shape[0], rows, columns)
        same = documents[:, None, :, None] == documents[:, None, None]
        allowed = allowed & same & (documents >= 0)[:, None, None]
    return allowed if mask is None else allowed & checked_mask(xp.asarray(mask), (*q.shape[:3], columns))


def transposed(x: Array) -> Array:
    """The matrices of a stack, transposed."""
    return x.swapaxes(-1, -2)


def checked_documents(documents: Array, samples: int, queries: int, keys: int) -> Array:
    """``documents``; raises ValueError unless they number each token of sequences that look at themselves."""
    if queries != keys or documents.shape != (samples, keys):
        raise ValueError(
            f"documents number the tokens of sequences that attend to themselves, ({samples}, {keys}) for "
            f"{queries} queries; got the shape {documents.shape}"
        )
    return documents


def checked_mask(mask: Array, scores: tuple[int, ...]) -> Array:
    """``mask`` with four axes; raises ValueError unless it has booleans and broadcasts to the scores."""
    if mask.dtype != bool:
        raise ValueError(
            f"attention takes a mask of booleans, True where a query sees a key, got {mask.dtype}"
        )
    whole = (1,) * (4 - mask.ndim) + mask.shape
    if any(n not in (1, m) for n, m in zip(whole, scores, strict=False)) or len(whole) != 4:
        raise ValueError(f"attention of scores {scores} cannot take a mask {mask.shape}; broadcast it")
    return mask.reshape(whole)


def check_shapes(q: tuple[int, ...], k: tuple[int, ...], v: tuple[int, ...]) -> None:
    """Raise ValueError unless keys and values, and keys and queries, belong together."""
    if len(q) == len(k) == len(v) == 4 and k[:3] == v[:3] and (q[0], q[2:]) == (k[0], k[2:]):
        return
    raise ValueError(
        f"attention takes queries (B, S, heads, D), keys (B, T, heads, D) and values (B, T, heads, E), got "
        f"{q}, {k} and {v}"
    )
