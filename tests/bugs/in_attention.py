"""Bugs of attention, in each of its forms, and of a transformer's block, and the laws that catch them."""

import numpy as np

from minigrad import nn, ops
from minigrad.ops.fast import attention
from minigrad.testing import DEVICE
from tests.bugs.bug import Bug
from tests.minigrad.nn.transformer_laws import documents_are_alone, gradients_are_differences, is_a_block
from tests.minigrad.ops.attention_laws import (
    a_block_holds,
    attends,
    attends_as_one,
    holds,
    in_each_form,
    merges,
    orders,
)

DOCUMENTS = np.array([[0, 0, 0, 0, 1, 1, 2, 2, 2], [-1, 3, 3, 3, 3, 3, 3, -1, 3]])


def drawn(size: int = 2, spread: float = 2.0) -> list[np.ndarray]:
    """Gradient, queries, keys and values of two samples of nine tokens, and two heads."""
    rng = np.random.default_rng(0)
    return [rng.normal(size=(2, 9, 2, size)) * factor for factor in (1, spread, spread, 1)]


def attention_is_loops() -> None:
    mask = np.random.default_rng(0).random((2, 1, 9, 9)) < 0.7
    for masks in ({}, {"causal": True}, {"documents": DOCUMENTS}, {"mask": mask, "causal": True}):
        for sizes in ((2, 4, 8), (4, 3, 200)):
            in_each_form(attends, sizes, ops.attention, *drawn(), **masks)
    in_each_form(attends, (2, 4, 8), ops.attention, *drawn(spread=100), causal=True)


def self_attention_is_loops() -> None:
    for masks in ({"causal": True}, {"documents": DOCUMENTS}):
        in_each_form(attends_as_one, (2, 4, 8), ops.self_attention, *drawn(3), **masks)


def parts_of_the_keys_are_merged() -> None:
    for order in orders(([3, 0], [1], [2, 4])):
        merges(attention.tile, attention.merge, order)


def tiles_hold_linear_memory() -> None:
    for rows in (16, 32):
        holds(ops.attention, 2 * rows * 3 * 5, *np.ones((3, 2, rows, 3, 4)), causal=True)
        holds(ops.self_attention, 2 * rows * 3 * 5, np.ones((2, rows, 3, 12)), causal=True)


def a_block_has_its_size() -> None:
    for tokens in (16, 32):
        a_block_holds(12, 3, 2, tokens, np.float32, rows=1, statistics=4)


def block() -> nn.TransformerBlock:
    result = nn.TransformerBlock(4, 2, hidden=3, rng=0, dtype=np.float64)
    for i, p in enumerate(result.parameters()):
        p.data[...] += np.random.default_rng(i).normal(size=p.shape) / 3
    result.to(device=DEVICE)
    return result


def a_block_is_its_definition() -> None:
    x = np.random.default_rng(0).normal(size=(2, 9, 4))
    is_a_block(block(), 2, x, DOCUMENTS)
    gradients_are_differences(block(), x, documents=DOCUMENTS)


def documents_stay_alone() -> None:
    documents_are_alone(block(), np.random.default_rng(0).normal(size=(2, 9, 4)), DOCUMENTS)


def a_table_is_used_twice() -> None:
    embedding = nn.TokenEmbedding(5, 3, 4, rng=0, dtype=np.float64)
    model = nn.Sequential(embedding, nn.Unembedding(embedding)).to(device=DEVICE)
    gradients_are_differences(model, np.array([[1, 1, 4]]))


OFF, NAN, QUERY = "(value|dq|dk|dv) is off by", "elements that are no numbers", r"query \d has"

BUGS = [
    Bug("weights of a softmax are not scaled", "weighted_values", "masked_softmax(scale * (",
        "masked_softmax((", attention_is_loops, OFF),
    Bug("a score's gradient has no mean", "weighted_values", "(d - (d * p).sum(axis=-1, keepdims=True))", "d",
        attention_is_loops, OFF),
    Bug("what is hidden has the score 0", "masked_softmax", "xp.where(allowed, scores, -np.inf)",
        "xp.where(allowed, scores, 0)", attention_is_loops, OFF),
    Bug("a row of nobody is the distance of infinities", "masked_softmax", "xp.where(top == -np.inf, 0, top)",
        "top", attention_is_loops, NAN),
    Bug("a token does not see itself", "attention.visible", "xp.arange(columns) <= ", "xp.arange(columns) < ",
        attention_is_loops, OFF),
    Bug("padding is seen", "attention.visible", "allowed & same & (documents >= 0)[:, None, None]",
        "allowed & same", attention_is_loops, OFF),
    Bug("gradients of queries and keys change places", "ops.attention.self_attention",
        "for pullback in pullbacks", "for pullback in (pullbacks[1], pullbacks[0], pullbacks[2])",
        self_attention_is_loops, OFF),
    Bug("keys begin within the queries", "attention.thirds", "i * size : (i + 1) * size",
        "i * (size - 1) : i * (size - 1) + size", self_attention_is_loops, OFF),
    Bug("parts are added without their weights", "attention.merge",
        "o * weight[..., None] + other * other_weight[..., None]", "o + other", parts_of_the_keys_are_merged,
        QUERY),
    Bug("two parts of nobody are merged as infinities", "attention.merge", "whole = finite(both)",
        "whole = both", parts_of_the_keys_are_merged, QUERY),
    Bug("the larger lse is that of both", "attention.merge", "np.logaddexp(lse, other_lse)",
        "np.maximum(lse, other_lse)", parts_of_the_keys_are_merged, QUERY),
    Bug("the lse of one tile is that of all", "fast.attention.attend", "merge(whole, whole_lse, *new)",
        "(merge(whole, whole_lse, *new)[0], new[1])", attention_is_loops, OFF),
    Bug("tiles are not merged", "fast.attention.attend", "new if first else merge(whole, whole_lse, *new)",
        "new", attention_is_loops, OFF),
    Bug("queries are scaled twice", "fast.attention.attend", "queries[*part, rows] * scale",
        "queries[*part, rows] * scale * scale", attention_is_loops, OFF),
    Bug("the keys' gradient is not scaled", "write_gradients", "dk[*part, columns] *= scale",
        "dk[*part, columns] *= 1", attention_is_loops, OFF),
    Bug("the first tile of keys overwrites what is not its own", "write_gradients",
        "first=columns.start == 0", "first=first", attention_is_loops, "dq is off by"),
    Bug("the last tile of queries is all that a key has", "add_product", "total += a @ b",
        "total[...] = a @ b", attention_is_loops, OFF),
    Bug("tiles hide with 0", "fast.attention.scores", "np.copyto(s, -np.inf, where=~allowed)",
        "np.copyto(s, 0, where=~allowed)", attention_is_loops, OFF),
    Bug("loops shift a row of nobody by infinity", "write_weights",
        "shift == -np.inf", "shift == np.inf", attention_is_loops, NAN, thorough=True),
    Bug("the lse of a tile forgets its largest score", "write_weights",
        "s.dtype.type(np.log(total) + shift)", "s.dtype.type(np.log(total))", attention_is_loops,
        f"{OFF}|{NAN}", thorough=True),
    Bug("loops know no delta", "write_scores_gradient", "(d[i, j] - mean)", "d[i, j]",
        attention_is_loops, OFF, thorough=True),
    Bug("without loops there is no delta", "tile_weights", "p * (d - delta[..., None])", "p * d",
        attention_is_loops, OFF),
    Bug("the diagonal of a tile is hidden", "Visibility.tile", "np.asarray(keys) <= ", "np.asarray(keys) < ",
        attention_is_loops, OFF),
    Bug("a tile on the diagonal is taken for one below", "Visibility.tile", "if keys[-1] > queries[0]:",
        "if keys[0] > queries[0]:", attention_is_loops, OFF),
    Bug("the last key before a query is left out", "Visibility.end_of_keys", "bisect_right(",
        "-1 + bisect_right(", attention_is_loops, OFF),
    Bug("documents in a tile are one", "Visibility.tile",
        "(keys != first[:, None]) | (first != last)[:, None] | (keys < 0)", "keys < 0",
        attention_is_loops, OFF),
    Bug("padding in a tile is seen", "Visibility.tile",
        "(queries[:, :, None] == keys[:, None]) & (keys >= 0)",
        "(queries[:, :, None] == keys[:, None]) | (keys < 0)", documents_stay_alone, "."),
    Bug("a tile that one sample hides is skipped for all", "Visibility.tile",
        "(keys.min(axis=1) > last)).all()", "(keys.min(axis=1) > last)).any()", attention_is_loops, OFF),
    Bug("a mask is that of the first tile", "Visibility.tile", "cut if n > 1 else slice(None)",
        "slice(0, cut.stop - cut.start) if n > 1 else slice(None)", attention_is_loops, OFF),
    Bug("weights are kept for backward", "attention_in_tiles",
        "def gradients(g: np.ndarray)", "def gradients(g: np.ndarray, p=np.empty((*lse.shape, k.shape[1])))",
        tiles_hold_linear_memory, "hold"),
    Bug("the value is copied for the next layer", "self_attention_in_tiles", "return o, (gradient,)",
        "return o.copy(), (gradient,)", a_block_has_its_size, "a block holds"),
    Bug("no dropout is a mask of ones", "Dropout.drops", " and self.p > 0", "", a_block_has_its_size,
        "a block holds"),
    Bug("tokens forget themselves", "TransformerBlock.forward", "x = x + self.dropout1(",
        "x = self.dropout1(", a_block_is_its_definition, "."),
    Bug("the feed-forward has the first norm", "TransformerBlock.forward", "self.norm2(x)", "self.norm1(x)",
        a_block_is_its_definition, "."),
    Bug("neurons of a head are far from each other", "nn.attention.Attention.forward",
        "qkv.shape[-1] // size, size)), **masks",
        "size, qkv.shape[-1] // size)).transpose(0, 1, 3, 2), **masks",
        a_block_is_its_definition, "."),
    Bug("the table is a constant where it scores", "Unembedding.forward", "ops.linear(x, self.weight)",
        "ops.linear(x, self.weight.data)", a_table_is_used_twice, "the slope along a parameter"),
]  # fmt: skip
