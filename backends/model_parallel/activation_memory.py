"""How many numbers a block of a transformer holds for backward, by what is split over ranks.

Lecture section: data lifetimes. Lesson: 17_sequences. Counts are in units of B S h numbers, for B samples of
S tokens of width h, in training mode.
"""

from __future__ import annotations

from typing import NamedTuple


class Block(NamedTuple):
    """Sizes of a block: ``tokens`` S, ``width`` h, ``heads`` and ``hidden`` neurons of the feed-forward."""

    tokens: int
    width: int
    heads: int
    hidden: int


class Part(NamedTuple):
    """How much of a ``Block`` a rank has: heads and neurons, and tokens between the products."""

    heads: int
    hidden: int
    tokens: int


def activation_memory(
    block: Block,
    part: Part | None = None,
    *,
    attention: str = "tiles",
    statistics: int = 4,
    dropout: bool = False,
    gather_again: bool = False,
) -> float:
    """Numbers, over B S h, that ``Tape.nbytes`` counts for a block, its input among them.

    By heads alone ``part.tokens`` are all. Of each token a block holds the inputs of both norms, and
    ``statistics``, 4 by loops and 2 on the readable shelf; with ``dropout`` two masks, in the dtype of x; of
    all tokens the inputs of qkv and of the feed-forward, unless they are gathered again; of each head of the
    rank q, k, v and its output, and what ``attention`` needs for each query: one number in "tiles" (Dao et
    al. 2022), its S probabilities as on the "slide", nothing if its core is "recomputed"
    (``minigrad.recompute.RecomputedModule``); of each neuron of the rank the GELU's input and output.

    Serial it is 16 + a/h + 4/h for f = 4 h, and 16 + a S/h + 2/h as on the slide.
    """
    s, h, a, f = block
    heads, hidden, tokens = part or Part(a, f, s)
    of_query = {"slide": s, "tiles": 1, "recomputed": 0}[attention]
    of_token = (2 + 2 * dropout + statistics / h) * tokens / s
    gathered = 2 * (tokens / s if gather_again else 1)
    return of_token + gathered + 4 * heads / a + heads * of_query / h + 2 * hidden / h


def bytes_after_korthikanti(
    block: Block, ranks: int = 1, *, split_tokens: bool = False, recompute: str = ""
) -> float:
    """Bytes, over B S h, after Korthikanti et al. (2022, section 4), with numbers of 2 bytes and f = 4 h.

    Masks take 1 byte there, and the input of the softmax is held besides its output. ``recompute`` is "" or
    "selective", which leaves out scores, probabilities and their mask, or "full", which keeps the input.
    """
    if recompute == "full":
        return 2.0
    scores = 0.0 if recompute == "selective" else 5 * block.heads * block.tokens / block.width
    if split_tokens:
        return (34 + scores) / ranks
    return 10 + (24 + scores) / ranks
