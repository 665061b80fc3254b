"""The answers to the questions on lesson 17, and the laws that show them."""

import inspect
from functools import partial

import numpy as np
from minigrad_course.lesson.questions import Question

from backends.comm import differentiable, run_ranks
from backends.sequence_parallel.token_order import columns_of, pairs_of
from backends.sequence_parallel.ulysses import ulysses_attention
from minigrad import Tape, Tensor, nn, op, ops
from minigrad.data import shares
from minigrad.models import transformer

DEVIATION_OF_TABLES = 0.02


def later_tokens(student):
    rng = np.random.default_rng(0)
    x, attention = rng.normal(size=(1, 6, 8)), nn.Attention(8, 2, rng=0, dtype=np.float64)
    changed = x.copy()
    changed[0, student.TOKEN_THAT_CHANGES] += 1.0
    places = np.flatnonzero((attention(x).data != attention(changed).data).any(axis=(0, 2))).tolist()
    assert student.TOKEN_THAT_CHANGES == 3, f"the results of tokens {places} change; let token 3 change"
    return f"the results of tokens {places} change: these see token 3, and the tokens before it do not"


def tile(scores, values):
    m = scores.max()
    e = np.exp(scores - m)
    return e @ values / e.sum(), m + np.log(e.sum())


def merge(one, other):
    (o1, lse1), (o2, lse2) = one, other
    lse = np.logaddexp(lse1, lse2)
    return o1 * np.exp(lse1 - lse) + o2 * np.exp(lse2 - lse), lse


def without_keys(student):
    rng = np.random.default_rng(0)
    scores, values = rng.normal(size=12), rng.normal(size=(12, 3))
    pieces = [tile(scores[:5], values[:5]), tile(scores[5:], values[5:])]
    empty = np.zeros(3), student.LSE_WITHOUT_KEYS
    right, with_empty = merge(*pieces)[0], merge(merge(merge(empty, pieces[0]), empty), pieces[1])[0]
    off = abs(with_empty - right).max()
    minus_infinity = student.LSE_WITHOUT_KEYS < -1e300
    assert minus_infinity, f'two empty tiles change the result by {off:.2f}; take "-inf"'
    assert np.array_equal(right, with_empty), f"two empty tiles change the result by {off:.0e}"
    return (
        "two empty tiles change no bit: the weight of one is exp(-inf) = 0, and the weight of the other is "
        "exp(0) = 1. Only two empty tiles alone need care: there -inf - -inf would be NaN"
    )


def bytes_for_backward(form, tokens):
    q, k, v = (
        Tensor(x, requires_grad=True) for x in np.random.default_rng(0).normal(size=(3, 1, tokens, 4, 16))
    )
    with Tape() as tape:
        form(q, k, v, causal=True)
    return tape.nbytes


def short_rows(student):
    readable = op(inspect.unwrap(ops.attention))
    nbytes = [bytes_for_backward(form, student.TOKENS) for form in (readable, ops.attention)]
    shown = (
        f"with {student.TOKENS} tokens the readable form holds {nbytes[0]:,} bytes, in pieces {nbytes[1]:,}"
    )
    assert student.TOKENS == 8, f"{shown}; take 8 tokens"
    assert nbytes[0] < nbytes[1], shown
    return (
        f"{shown}: for each query and head S weights are fewer than its D = 16 results and one lse while S "
        "is below 17"
    )


def certain_beginning(student):
    rng = np.random.default_rng(0)
    net = transformer(rng, width=32, length=16)
    for table in (net[0].weight, net[0].position):
        table.data *= student.DEVIATION / DEVIATION_OF_TABLES
    x, y = rng.integers(0, 92, (2, 8, 16))
    loss = float(nn.CrossEntropyLoss(class_axis=-1)(net(x), y).data)
    assert student.DEVIATION == 1, f"with a deviation of {student.DEVIATION:g} the loss is {loss:.2f}; take 1"
    assert loss > 10, f"the loss is {loss:.2f}"
    return f"the first loss is {loss:.1f}: nearly all probability goes to one symbol, mostly to a wrong one"


def bias_of_keys(student):
    rng = np.random.default_rng(1)
    arrays = dict(zip(("queries", "keys", "values"), rng.normal(size=(3, 1, 6, 1, 4)), strict=True))
    assert student.BIAS_OF in arrays, f"{student.BIAS_OF!r} is none of {', '.join(arrays)}"
    bias = Tensor(rng.normal(size=4), requires_grad=True)
    with Tape() as tape:
        o = ops.attention(
            *(x + bias if name == student.BIAS_OF else x for name, x in arrays.items()), causal=True
        )
    tape.backward(o, rng.normal(size=o.shape))
    largest = abs(bias.grad).max()
    assert student.BIAS_OF == "keys", f"the largest gradient is {largest:.2f}; add the bias to the keys"
    assert largest < 1e-14, f"the largest gradient is {largest:.0e}"
    return (
        f"the largest gradient is {largest:.0e}: the bias adds the same number to all scores of a query, and "
        "no softmax changes by that. So the library's qkv has no bias"
    )


def gradient_of_tokens(comm, gathered):
    """The gradient of sum(y²), by this rank's tokens, for y = attention of all heads."""
    rng = np.random.default_rng(2)
    x, qkv, out = rng.normal(size=(1, 6, 8)), rng.normal(size=(24, 8)), rng.normal(size=(8, 8))
    tokens, mine = shares(6, comm.size)[comm.rank], shares(2, comm.size)[comm.rank]
    rows, columns = slice(12 * mine.start, 12 * mine.stop), slice(4 * mine.start, 4 * mine.stop)
    leaf = Tensor(x[:, tokens], requires_grad=True)
    with Tape() as tape:
        made = ops.linear(gathered(leaf, comm), qkv[rows])
        made = ops.reshape(made, shape=(1, 6, made.shape[-1] // 12, 12))
        o = ops.attention(*ops.split(made, sections=3, axis=3), causal=True)
        o = ops.linear(ops.reshape(o, shape=(1, 6, columns.stop - columns.start)), out[:, columns])
        y = differentiable.reduce_scatter(o, comm=comm, axis=1)
    tape.backward(y, 2 * y.data)
    return leaf.grad


def which_gather(student):
    whole = run_ranks(1, lambda comm: gradient_of_tokens(comm, lambda x, comm: x))[0]
    parts = run_ranks(2, lambda comm: gradient_of_tokens(comm, student.gathered))
    off = abs(np.concatenate(parts, axis=1) - whole).max() / abs(whole).max()
    assert off > 0.01, f"the gradient of the tokens is right, to {off:.0e}; take join_in"
    return (
        f"the gradient of the tokens is off by {off:.0%} of its largest element: each rank computes "
        "something else with all tokens, and join_in does not add the other rank's gradient of them"
    )


def time_in_pairs(order, causal):
    """Pairs that a ring of four ranks lasts for 64 tokens in this order: each step as long as its longest."""
    pairs = pairs_of(columns_of(64, 4, order), causal)
    return sum(max(int(pairs[rank, (rank - t) % 4]) for rank in range(4)) for t in range(4))


def without_a_mask(student):
    plain, zigzag = (time_in_pairs(order, student.CAUSAL) for order in ("contiguous", "zigzag"))
    shown = f"attention lasts {plain} pairs in plain order, {zigzag} in zig-zag order"
    assert student.CAUSAL is False, f"{shown}; take CAUSAL = False"
    assert plain == zigzag == 64 * 64 // 4, shown
    return f"{shown}: all tiles are full, 16 x 16 pairs, so no rank waits in any order"


def heads_by_rank(comm, qkv):
    """How many heads the rank has, and by all-to-alls the attention of its tokens."""
    tokens = columns_of(qkv.shape[1], comm.size, "contiguous")
    heads = shares(qkv.shape[2], comm.size)[comm.rank]
    attended = ulysses_attention(qkv[:, tokens[comm.rank]], comm=comm, columns=tokens)
    return heads.stop - heads.start, attended.data


def more_ranks_than_heads(student):
    qkv = np.random.default_rng(3).normal(size=(1, 8, 4, 12))
    heads, parts = zip(*run_ranks(student.RANKS, partial(heads_by_rank, qkv=qkv)), strict=True)
    off = abs(np.concatenate(parts, axis=1) - ops.self_attention(qkv, causal=True).data).max()
    shown = f"the ranks have {', '.join(map(str, heads))} heads, and the result is off by {off:.0e}"
    assert student.RANKS == 8, f"{shown}; take 8 ranks"
    assert heads.count(0) == 4 and off < 1e-14, shown
    return f"{shown}. A rank without a head sends its tokens, and gets the results for them"


def run_on(student):
    choices = ("start again", "run on")
    assert student.PLACES in choices, f"{student.PLACES!r} is none of {', '.join(choices)}"
    rng = np.random.default_rng(0)
    embedding, block, norm, scores = transformer(rng, width=16, length=9, heads=2, blocks=1).to(
        dtype=np.float64
    )
    symbols, documents = rng.integers(0, 92, (1, 9)), np.repeat([[0, 1]], [5, 4], axis=1)

    def predictions(symbols, places, documents):
        h = ops.embedding(embedding.weight, symbols) + ops.embedding(embedding.position, places)
        return scores(norm(block(h, documents=documents))).data

    again = np.array([[*range(5), *range(4)]])
    alone = [predictions(symbols[:, a:b], again[:, a:b], documents[:, a:b]) for a, b in ((0, 5), (5, 9))]
    places = again if student.PLACES == "start again" else np.arange(9)[None]
    packed = predictions(symbols, places, documents)
    off = [abs(packed[:, a:b] - one).max() for (a, b), one in zip(((0, 5), (5, 9)), alone, strict=True)]
    shown = f"the scores of the two documents are off by {off[0]:.0e} and {off[1]:.0e}"
    assert student.PLACES == "run on", f'{shown}; let the places "run on"'
    assert off[0] < 1e-12 < 1e-4 < off[1], shown
    return f"{shown}: the second one gets the vectors of places 5 to 8, which say that letters come before it"


QUESTIONS = [
    Question("b", later_tokens, (("TOKEN_THAT_CHANGES = 0\n", "TOKEN_THAT_CHANGES = 3\n"),)),
    Question("c", without_keys, (("LSE_WITHOUT_KEYS = 0.0", 'LSE_WITHOUT_KEYS = float("-inf")'),)),
    Question("b", short_rows, (("TOKENS = 512", "TOKENS = 8"),)),
    Question("a", certain_beginning, (("DEVIATION = 0.02", "DEVIATION = 1"),)),
    Question("b", bias_of_keys, (('BIAS_OF = "queries"', 'BIAS_OF = "keys"'),)),
    Question("b", which_gather, (("return differentiable.all_gather(", "return differentiable.join_in("),)),
    Question("b", without_a_mask, (("CAUSAL = True", "CAUSAL = False"),)),
    Question("c", more_ranks_than_heads, (("RANKS = 4", "RANKS = 8"),)),
    Question("c", run_on, (('PLACES = "start again"', 'PLACES = "run on"'),)),
]
