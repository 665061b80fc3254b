"""Ring attention: each rank keeps its queries, and the keys and values of all ranks go round.

Lecture section: sequence parallelism. Lesson: 17_sequences. In step t rank r has the keys of rank r - t, and
``merge`` joins what its queries see there to what they saw before (Liu, Zaharia and Abbeel 2023). The next
block is on its way while this one is computed. Backward sends the blocks round again, and behind them the
gradients of those that have passed, which after the last step are one hop from home. Arrays of float16
travel as such: a rank computes and adds up in float32, and rounds what it passes on. ``naive.py`` is the
slide itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from minigrad.device import Array, array_module
from minigrad.half import rounded, widened
from minigrad.op import OpResult, alike, floating, op, shape_of
from minigrad.ops.attention import check_shapes
from minigrad.tape import once_for_all

from ..comm.collectives.send_recv import Tag
from ..comm.communicator import Communicator
from .tiles import BlockMask, attend_to_block, gradients_of_block, merge, row_products


@op
def ring_attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    comm: Communicator,
    columns: Sequence[np.ndarray],
    causal: bool = True,
    documents: Any = None,
) -> OpResult:
    """``ops.attention`` of this rank's queries (B, n, heads, D) to the keys and values of all ranks.

    ``columns`` are those of each rank in the whole rows, as ``columns_of`` gives them; ``documents`` (B, S)
    number those of the whole rows. Keys and values are one message for each hop: p - 1 in forward, and in
    backward p - 1 and as many with gradients. Where n_r are the tokens of rank r, it sends in forward
    B heads (D + E) sum_{t < p - 1} n_{r - t} numbers, and in backward the same and those of
    t = 1, ..., p - 1: with equal parts, and D = E, 6 (p - 1) B n heads D in all. Raises ValueError where
    shapes do not fit.
    """
    check_shapes(shape_of(q), shape_of(k), shape_of(v))
    q, k = alike(q, k)
    size = k.shape[-1]
    ring = Ring(comm, columns, causal, documents, size, q.dtype)
    o, gradients = ring.attention(q, array_module(q).concatenate([k, floating(v, q)], axis=-1))

    def all_three(g: Array) -> list[Array]:
        dq, d = gradients(g)
        return [dq, d[..., :size], d[..., size:]]

    _, pullback = once_for_all(all_three)
    return o, (pullback(0), pullback(1), pullback(2))


@op
def ring_self_attention(
    qkv: Array,
    *,
    comm: Communicator,
    columns: Sequence[np.ndarray],
    causal: bool = True,
    documents: Any = None,
) -> OpResult:
    """``ring_attention`` of the same tokens: qkv (B, n, heads, 3 D) has queries, then keys, then values."""
    qkv = floating(qkv)
    size = qkv.shape[-1] // 3
    ring = Ring(comm, columns, causal, documents, size, qkv.dtype)
    o, gradients = ring.attention(qkv[..., :size], qkv[..., size:])
    return o, (lambda g: array_module(g).concatenate(gradients(g), axis=-1),)


class Ring(NamedTuple):
    """The ranks of a ring, their columns, and the mask; of keys and values the first ``size`` are the key.

    ``dtype`` is that of the arrays and of what travels.
    """

    comm: Communicator
    columns: Sequence[np.ndarray]
    causal: bool
    documents: Any
    size: int
    dtype: Any

    def attention(self, q: Array, kv: Array) -> tuple[Array, Callable[[Array], tuple[Array, Array]]]:
        """The value, and the function from its gradient to those of q and kv."""
        ring = self
        if self.documents is not None:
            ring = self._replace(documents=array_module(q).asarray(self.documents))
        ring.check(q)
        o, lse = ring.forward(widened(q), kv)
        o = self.in_dtype(o)

        def gradients(g: Array) -> tuple[Array, Array]:
            dq, d = ring.backward(widened(g), widened(q), kv, widened(o), lse)
            return self.in_dtype(dq), self.in_dtype(d)

        return o, gradients

    def forward(self, q: Array, kv: Array) -> tuple[Array, Array]:
        """The value (B, n, heads, E) and lse (B, heads, n) of all ranks' keys."""
        p, o, lse = self.comm.size, None, None
        for t in range(p):
            finish = self.pass_on(kv, Tag.KEYS) if t < p - 1 else None
            mask = self.mask(t)
            if t == 0 or not mask.allows_none():
                with self.comm.computing("attention"):
                    block = attend_to_block(q, *self.keys_and_values(kv), mask)
                    o, lse = block if o is None or lse is None else merge(o, lse, *block)
            kv = kv if finish is None else finish()  # a block that nobody sees here goes on all the same
        assert o is not None and lse is not None
        return o, lse

    def backward(self, g: Array, q: Array, kv: Array, o: Array, lse: Array) -> tuple[Array, Array]:
        """The gradients of q and kv."""
        p, delta = self.comm.size, row_products(g, o)
        xp = array_module(q)
        dq, home, passed = xp.zeros(q.shape, q.dtype), xp.zeros(kv.shape, q.dtype), None
        for t in range(p):
            finish = self.pass_on(kv, Tag.KEYS) if t < p - 1 else None
            mask, d = self.mask(t), None
            if not mask.allows_none():
                with self.comm.computing("attention"):
                    to_q, *to_kv = gradients_of_block(g, q, *self.keys_and_values(kv), lse, delta, mask)
                    dq += to_q
                    d = xp.concatenate(to_kv, axis=-1)
            d = xp.zeros(kv.shape, q.dtype) if d is None else d
            if t == 0:
                home = d
            else:  # the gradients of this block from the ranks that it has passed, and from this one
                passed = self.pass_on(d if passed is None else d + passed(), Tag.KEYS_GRADIENT)
            kv = kv if finish is None else finish()
        return dq, home if passed is None else home + passed()

    def keys_and_values(self, kv: Array) -> tuple[Array, Array]:
        return widened(kv[..., : self.size]), widened(kv[..., self.size :])

    def mask(self, t: int) -> BlockMask:
        """The mask of this rank's queries and the keys that are here in step t."""
        rank = self.comm.rank
        pair = self.columns[rank], self.columns[(rank - t) % self.comm.size]
        documents = None if self.documents is None else tuple(self.documents[:, own] for own in pair)
        return BlockMask(pair if self.causal else None, documents)

    def pass_on(self, x: Array, tag: int) -> Callable[[], Array]:
        """Start to send x to the next rank and to receive from the one before; returns what ends both."""
        p, rank = self.comm.size, self.comm.rank
        finish_send = self.comm.start_send(self.in_dtype(x), (rank + 1) % p, tag)
        finish_recv = self.comm.start_recv((rank - 1) % p, tag)

        def finish() -> Array:
            received = finish_recv()
            finish_send()
            return received

        return finish

    def in_dtype(self, x: Array) -> Array:
        """x, rounded where it was computed in float32 from float16."""
        return x if x.dtype == self.dtype else rounded(x, self.dtype)

    def check(self, q: Array) -> None:
        """Raise ValueError unless the queries are those of this rank's columns, and documents of all."""
        p, rank, length = self.comm.size, self.comm.rank, sum(map(len, self.columns))
        if len(self.columns) != p or len(self.columns[rank]) != q.shape[1]:
            raise ValueError(
                f"a ring of {p} ranks needs the columns of each, and {q.shape[1]} of rank {rank}, which has "
                f"as many tokens; got {[len(own) for own in self.columns]}; take columns_of(length, ranks)"
            )
        if self.documents is not None and self.documents.shape != (len(q), length):
            raise ValueError(
                f"documents number the tokens of whole rows, {(len(q), length)}, got {self.documents.shape}"
            )
