"""A block of a transformer.

Lecture section: back-propagation. Lesson: 17_sequences.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..module import Module, Sequential
from ..tensor import Tensor
from .activation import GELU
from .attention import Attention
from .dropout import Dropout
from .init import Rng, generator
from .linear import Linear
from .norm import LayerNorm


class TransformerBlock(Module):
    """Tokens (B, S, width) look at one another, then each is transformed alone; both are added to them.

    The norms stand before the two, so that a sum of all blocks' results leads through the net (pre-norm, as
    in GPT-2). ``feed_forward`` has ``hidden`` neurons with a GELU, by default 4 width, or is the module that
    is passed, such as ``Experts``. ``p`` is the probability of dropout before each sum. Keywords are passed
    on to the attention.

    >>> from minigrad import nn
    >>> nn.TransformerBlock(8, 2, rng=0)(np.zeros((3, 5, 8))).shape
    (3, 5, 8)
    """

    token_wise = True

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        hidden: int | None = None,
        feed_forward: Module | None = None,
        p: float = 0.0,
        causal: bool = True,
        rng: Rng | int | None = None,
        dtype: Any = np.float32,
    ):
        rng, hidden = generator(self, rng), 4 * width if hidden is None else hidden
        self.norm1 = LayerNorm(width, dtype=dtype)
        self.attention = Attention(width, heads, causal=causal, rng=rng, dtype=dtype)
        self.dropout1 = Dropout(p, rng=rng)
        self.norm2 = LayerNorm(width, dtype=dtype)
        if feed_forward is None:
            first = Linear(width, hidden, rng=rng, dtype=dtype)
            second = Linear(hidden, width, rng=rng, dtype=dtype)
            feed_forward = Sequential(first, GELU(), second)
        self.feed_forward: Module = feed_forward
        self.dropout2 = Dropout(p, rng=rng)

    def forward(self, x: Any, **masks: Any) -> Tensor:
        x = x + self.dropout1(self.attention(self.norm1(x), **masks))
        return x + self.dropout2(self.feed_forward(self.norm2(x)))
