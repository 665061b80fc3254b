"""Attention of several heads, each of which looks at tokens in a way that it learns.

Lecture section: back-propagation. Lesson: 17_sequences.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import ops
from ..integer_settings import integer
from ..module import Module
from ..tensor import Tensor
from ..tokens import Tokens, current_tokens
from .init import Rng, generator
from .linear import Linear


class AttentionCore(Module):
    """``ops.self_attention`` of (B, S, heads, 3 D), causal by default; it has no parameters.

    Keywords such as ``documents`` are those of the op; documents that the batch knows need none.
    """

    token_wise = True

    def __init__(self, *, causal: bool = True):
        self.causal = causal

    def forward(self, qkv: Any, **masks: Any) -> Tensor:
        tokens = current_tokens()
        tokens = Tokens() if tokens is None else tokens
        return tokens.self_attention(qkv, causal=self.causal, **masks)

    def describe(self) -> str:
        return f"causal={self.causal}"


class Attention(Module):
    """Multi-head self-attention of tokens (B, S, width): out(core(qkv(x))) (Vaswani et al. 2017).

    ``qkv`` computes queries, keys and values of all heads as one product; its 3 width neurons are head by
    head, a head's queries before its keys and its values, so that consecutive neurons belong to one head. It
    has no bias: a number that is added to all keys changes no softmax, so that the keys' bias would have the
    gradient 0, of which computers have the rounding errors alone. ``core`` may be replaced by another module,
    which makes (B, S, heads, D) of (B, S, heads, 3 D). Keywords are passed on to it. Raises ValueError unless
    ``heads`` divides ``width``, and for x without these axes.

    >>> from minigrad import nn
    >>> nn.Attention(8, 2, rng=0)(np.zeros((3, 5, 8))).shape
    (3, 5, 8)
    """

    token_wise = True

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        causal: bool = True,
        rng: Rng | int | None = None,
        dtype: Any = np.float32,
    ):
        width, heads = integer(width, "width", 1), integer(heads, "heads", 1)
        if width % heads:
            legal = [n for n in range(1, width + 1) if not width % n]
            raise ValueError(
                f"{heads} heads do not divide a width of {width}; choose one of {', '.join(map(str, legal))}"
            )
        rng = generator(self, rng)
        self.size = width // heads  # of a head
        self.qkv = Linear(width, 3 * width, bias=False, rng=rng, dtype=dtype)
        self.core: Module = AttentionCore(causal=causal)
        self.out = Linear(width, width, rng=rng, dtype=dtype)

    def forward(self, x: Any, **masks: Any) -> Tensor:
        check_tokens(np.shape(x))
        qkv, size = self.qkv(x), 3 * self.size
        o = self.core(ops.reshape(qkv, shape=(*qkv.shape[:-1], qkv.shape[-1] // size, size)), **masks)
        return self.out(ops.reshape(o, shape=(*qkv.shape[:-1], qkv.shape[-1] // 3)))


def check_tokens(shape: tuple[int, ...], taker: str = "attention") -> None:
    """Raise ValueError, which names the ``taker``, unless ``shape`` is that of tokens (B, S, width)."""
    if len(shape) != 3:
        raise ValueError(f"{taker} takes tokens (B, S, width), got {shape}; x[None] is one sample")
