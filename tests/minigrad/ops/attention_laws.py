"""Laws of minigrad/ops/attention.py and minigrad/ops/fast/attention.py, attention_loops.py and visibility.py:
attention is three loops, whatever the tiles, and holds what its formula says.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np

from minigrad import Parameter, Tape, Tensor, loops, nn, ops
from minigrad.device import to_host
from minigrad.ops.fast import attention
from minigrad.testing import on_device
from tests.minigrad.ops.fast.fast_form_laws import readable_forms

Op = Callable[..., Tensor]


@contextmanager
def tiles(short: int, long: int, scores: int = 8) -> Iterator[None]:
    """Inside, tiles have sides of at most ``short`` and ``long``, and ``scores`` are computed together."""
    with ExitStack() as stack:
        for name, size in (("SHORT", short), ("LONG", long), ("SCORES", scores)):
            stack.enter_context(patch.object(attention, name, size))
        yield


@contextmanager
def without_loops() -> Iterator[None]:
    with patch.object(loops, "available", return_value=False):
        yield


def in_each_form(law: Callable[..., None], sizes: tuple[int, ...], *arguments: Any, **settings: Any) -> None:
    """The law holds for the readable form, and for tiles with loops and without, of ``sizes`` and others."""
    with readable_forms():
        law(*arguments, **settings)
    law(*arguments, **settings)
    with tiles(*sizes):
        law(*arguments, **settings)
        with without_loops():
            law(*arguments, **settings)


def attends(op: Op, g: np.ndarray, q: np.ndarray, k: np.ndarray, v: np.ndarray, **masks: Any) -> None:
    """The value and the three gradients of ``op`` are those of loops over samples, queries and keys."""
    leaves = [Tensor(on_device(x), requires_grad=True) for x in (q, k, v)]
    with Tape() as tape:
        y = op(*leaves, **masks)
    tape.backward(y, on_device(g))
    exact, largest = attention_by_loops(g, q, k, v, **masks)
    sizes = [np.abs(x).max(initial=1) for x in (g, q, k, v)]
    scores = (
        sizes[0] * sizes[3] * v.shape[-1] * max(q.shape[1], k.shape[1])
    )  # what a score's gradient adds up
    scales = [sizes[3], scores * sizes[2], scores * sizes[1], sizes[0] * q.shape[1]]
    results = [y.data, *(x.grad for x in leaves)]
    for what, a, b, scale in zip(("value", "dq", "dk", "dv"), results, exact, scales, strict=True):
        a = to_host(a)
        assert a.dtype == q.dtype and a.shape == b.shape, f"{what} is {a.dtype} {a.shape}, not {b.shape}"
        assert np.isfinite(a).all(), f"{what} has elements that are no numbers"
        bound = 8 * np.finfo(q.dtype).eps * (8 + largest) * scale
        error = np.abs(a - b).max(initial=0)
        assert error <= bound, f"{what} is off by {error:.1e}, allowed are {bound:.1e}"


def attends_as_one(op: Op, g: np.ndarray, q: np.ndarray, k: np.ndarray, v: np.ndarray, **masks: Any) -> None:
    """``attends`` of an op that takes queries, keys and values as one array (B, S, heads, 3 D)."""
    attends(lambda *x, **masks: op(ops.concatenate(*x, axis=3), **masks), g, q, k, v, **masks)


def attention_by_loops(
    g: np.ndarray,
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    *,
    causal: bool = False,
    documents: np.ndarray | None = None,
    mask: np.ndarray | None = None,
) -> tuple[list[np.ndarray], float]:
    """The value, the three gradients for g, and the largest score, by the definition, in float64."""
    g, q, k, v = (x.astype(np.float64) for x in (g, q, k, v))
    o, dq, dk, dv = np.zeros(g.shape), np.zeros(q.shape), np.zeros(k.shape), np.zeros(v.shape)
    root, largest = math.sqrt(max(q.shape[-1], 1)), 0.0
    whole = None if mask is None else np.broadcast_to(mask, (len(q), q.shape[2], q.shape[1], k.shape[1]))
    for b, h, i in np.ndindex(len(q), q.shape[2], q.shape[1]):
        visible = []
        for j in range(k.shape[1]):
            hidden = causal and j > i
            hidden |= documents is not None and (documents[b, j] < 0 or documents[b, i] != documents[b, j])
            hidden |= whole is not None and not whole[b, h, i, j]
            if not hidden:
                visible.append(j)
        scores = [float(q[b, i, h] @ k[b, j, h]) / root for j in visible]
        largest = max([largest, *map(abs, scores)])
        weights = [math.exp(s - max(scores)) for s in scores]
        weights = [w / math.fsum(weights) for w in weights]
        slopes = [float(g[b, i, h] @ v[b, j, h]) for j in visible]
        mean = math.fsum([w * s for w, s in zip(weights, slopes, strict=True)])
        for j, w, slope in zip(visible, weights, slopes, strict=True):
            o[b, i, h] += w * v[b, j, h]
            dv[b, j, h] += w * g[b, i, h]
            dq[b, i, h] += w * (slope - mean) / root * k[b, j, h]
            dk[b, j, h] += w * (slope - mean) / root * q[b, i, h]
    return [o, dq, dk, dv], largest


def merges(tile: Callable[..., Any], merge: Callable[..., Any], parts: Sequence[Sequence[int]]) -> None:
    """Tiles of any parts of the keys, merged in any order, are one softmax over all keys; lse, too.

    Query 0 sees nobody, query 1 the first key alone, the others all.
    """
    rng, size = np.random.default_rng(len(parts)), sum(map(len, parts))
    q, k, v = rng.normal(size=(3, 2)) * 9, rng.normal(size=(size, 2)), rng.normal(size=(size, 3))
    allowed = np.ones((3, size), bool)
    allowed[0], allowed[1, 1:] = False, False
    results = []
    for part in parts:
        results.append(tile(q, k[part], v[part], allowed[:, part]))
    o, lse = results[0]
    for other in results[1:]:
        o, lse = merge(o, lse, *other)
    for i in range(3):
        visible = [j for j in range(size) if allowed[i, j]]
        weights = [math.exp(float(q[i] @ k[j])) for j in visible]
        expected = sum((w * v[j] for w, j in zip(weights, visible, strict=True)), np.zeros(3))
        expected /= math.fsum(weights) or 1
        assert np.isfinite(o[i]).all(), f"query {i} has {o[i]}"
        assert np.abs(o[i] - expected).max() <= 1e-12, f"query {i} has {o[i]}, not {expected}"
        total = math.log(math.fsum(weights)) if visible else -math.inf
        assert lse[i] == total or abs(lse[i] - total) <= 1e-12, f"lse {i} is {lse[i]}, not {total}"


def holds(op: Op, expected: int, *inputs: np.ndarray, **masks: Any) -> None:
    """Backward of ``op`` of leaves holds ``expected`` numbers, besides the leaves and the arrays of masks."""
    leaves = [Tensor(x, requires_grad=True) for x in inputs]
    with Tape() as tape:
        op(*leaves, **masks)
    arrays = sum(array.nbytes for array in masks.values() if isinstance(array, np.ndarray))
    count = (tape.nbytes - arrays) / inputs[0].itemsize
    assert count == expected, f"{inputs[0].shape} tokens hold {count} numbers, not {expected}"


def a_block_holds(
    width: int, heads: int, samples: int, tokens: int, dtype: Any, *, rows: int, statistics: int
) -> None:
    """A block's tape has 16 B S h numbers, ``rows`` for each query of a head, ``statistics`` for each token.

    They are norm1's input and value, queries, keys and values (3), the joined heads, norm2's input and value
    (8 so far), GELU's input and value, each 4 times as wide.
    """
    block, x = nn.TransformerBlock(width, heads, rng=0, dtype=dtype), np.ones((samples, tokens, width), dtype)
    leaf = Parameter(x)
    with Tape() as tape:
        block(leaf * 1.0)
    numbers = 16 * x.size + rows * heads * samples * tokens + statistics * samples * tokens
    count = tape.nbytes / x.itemsize
    assert count == numbers, f"a block holds {count / x.size} (B S h) numbers, not {numbers / x.size}"


def orders(parts: Sequence[Sequence[int]]) -> Iterator[tuple[Sequence[int], ...]]:
    return itertools.permutations(parts)
