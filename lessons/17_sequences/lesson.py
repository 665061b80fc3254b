"""Lesson 17. Sequences: a transformer, whole and on several ranks.

Lecture section: sequences, from attention to a transformer that is split over ranks. This lesson computes
attention by hand; a softmax in pieces, and the memory that this saves; a small transformer that learns the
prose of this course; its heads on several ranks, and then its tokens; a row that is too long for one rank, by
a ring of keys and by all-to-alls; and documents of unequal lengths in one row. Survey: Phuong and Hutter
2022, "Formal algorithms for transformers", arXiv:2207.09238.

The slide asks: how does a token use the tokens before it, and what must be sent when they are on other ranks?

You need: lessons 02 and 03, the tape and what it keeps; lesson 05, the ring; lesson 11, layers that are split
by neurons; what a softmax, a scalar product and a matrix product are.

Time: about 95 minutes; the program runs for about 25 seconds.

After this you can: compute attention and its causal mask by hand; merge pieces of a softmax; derive the
memory of attention; say what a rank sends by heads, by tokens, on a ring and by all-to-alls; balance a causal
ring; write the loss of packed documents as one mean.

    python lessons/17_sequences/lesson.py

Needs neither MPI nor a cluster: ranks are threads of this process. Figures go to runs/lessons/17_sequences/.
In an editor that knows `# %%` cells this file opens as a notebook.
"""

# %%
import inspect
import textwrap
from functools import partial, reduce
from itertools import permutations

import drawings
import measured
import numpy as np
from minigrad_course.shared.style import start_lesson
from packing import PackedNet, packed, shown
from split_block import HEADS, WIDTH, B, D, S, cut, owners, parameters, part_of, serial, tokens

from backends.comm import differentiable, run_ranks
from backends.comm.collectives import allgather, ring_allreduce
from backends.comm.collectives.send_recv import Tag, send_recv
from backends.data_parallel import DataParallel
from backends.laws import bound_for
from backends.model_parallel import ModelParallel
from backends.sequence_parallel import SequenceParallel
from backends.sequence_parallel.naive import naive_ring_attention
from backends.sequence_parallel.ring import ring_attention, ring_self_attention
from backends.sequence_parallel.tiles import BlockMask, attend_to_block
from backends.sequence_parallel.tiles import merge as merge_blocks
from backends.sequence_parallel.token_order import columns_of, pairs_of
from minigrad import loops, nn, op, ops, optim, text
from minigrad.data import Batch, shares
from minigrad.figures import save
from minigrad.generate import generate
from minigrad.lr_schedules import cosine, warm_up
from minigrad.models import transformer
from minigrad.ops.fast import attention as tiles
from minigrad.tape import once
from minigrad.train import fit
from minigrad.weighted_mean import WeightedMean

FIGURES = start_lesson("17_sequences")

# %% [markdown]
# ## 1. Attention: a weighted mean over earlier tokens
# A *token* is a piece of a text: a word, a part of a word or, in this lesson, a letter. A *transformer*
# reads a row of tokens and says, at each place, which token comes next. It computes with vectors. The
# *embedding* is a table with a row of numbers, a vector, for each kind of token, and the numbers are learned.
# Here the text is "abab", and we write the table ourselves: a is (1, 0, 0, 0), b is (0, 1, 0, 0).
#
# What comes next depends on the tokens before it. By *attention* a token receives what it needs from them.
# Three learned matrices make three vectors from the vector of each token:
#
# - a *query*, which says what the token looks for,
# - a *key*, which says what it can be found by,
# - a *value*, which is what other tokens receive from it.
#
# The *score* of query i and key j is their scalar product, divided by sqrt(D) for vectors of D numbers. A
# softmax turns the scores of one query into *weights*, which are positive and have the sum 1. The result for
# token i is the mean of the values with these weights. A *mask* says which keys a query may see. Ours is
# *causal*: a token sees itself and the tokens before it; the later tokens are what we want to predict.
#
# In the example the keys are the rows of the table, the queries are 2 ln 3 times the same rows, and the
# values are the numbers 10, 20, 30, 40. So D is 4, the score of two equal letters is 2 ln 3 / 2 = ln 3, and
# the score of two different ones is 0. The exponentials are 3 and 1, and every weight can be checked by hand.

# %%
print("1. Attention: a weighted mean over earlier tokens")
embedding = {"a": [1.0, 0.0, 0.0, 0.0], "b": [0.0, 1.0, 0.0, 0.0]}
keys = np.array([embedding[letter] for letter in "abab"])
queries, values = 2 * np.log(3) * keys, np.array([[10.0], [20.0], [30.0], [40.0]])


def attention_by_hand(q, k, v):
    scores = q @ k.T / np.sqrt(q.shape[1])
    sees = np.tril(np.ones(scores.shape, bool))  # query i sees keys 0 to i
    exponentials = np.where(sees, np.exp(scores), 0.0)
    weights = exponentials / exponentials.sum(axis=1, keepdims=True)
    return weights @ v, weights


outputs, weights = attention_by_hand(queries, keys, values)
for i, row in enumerate(weights):
    shown_weights = " ".join(f"{weight:.3f}" for weight in row)
    print(f"   token {i}, {'abab'[i]}: weights {shown_weights}, result {outputs[i, 0]:g}")
expected = [1, 0, 0, 0], [1 / 4, 3 / 4, 0, 0], [3 / 7, 1 / 7, 3 / 7, 0], [1 / 8, 3 / 8, 1 / 8, 3 / 8]
off = np.abs(weights - expected).max(), np.abs(outputs[:, 0] - [10, 17.5, 20, 27.5]).max()
assert max(off) < 1e-13, f"weights are off by {off[0]:.0e}, results by {off[1]:.0e}, limit 1e-13"

# %% [markdown]
# The third token, an a, takes 3/7 from each a and 1/7 from the b: 3/7 10 + 1/7 20 + 3/7 30 = 20.
#
# The library's `ops.attention` (`minigrad/ops/attention.py`) does this for B rows of S tokens at once, and
# for several *heads*: each head has other queries, keys and values, so it can look for something else.
# The arrays have the shape (B, S, heads, D). The rows may be shorter than S, filled up with *padding*, and
# may hold several *documents*, numbered from 0; padding has the number -1. A token sees its own document
# only. A token of padding sees nothing and is seen by no token, and its result is 0. `attention_by_loops`, in
# measured.py, computes the same with nothing but loops.

# %%
rng = np.random.default_rng(1)
q, k, v = rng.normal(size=(3, 2, 8, 3, 4))  # 2 rows, 8 tokens, 3 heads, D = 4
documents = np.array([[0, 0, 0, 0, 0, 0, -1, -1], [0, 0, 0, 1, 1, 1, 1, 1]])
attended = ops.attention(q, k, v, causal=True, documents=documents).data
off = np.abs(attended - measured.attention_by_loops(q, k, v, documents)).max()
print(f"   ops.attention and plain loops differ by {off:.0e}")
assert off <= 1e-15 * max(1, np.abs(v).max()), f"ops.attention is off by {off:.1e}, limit 1e-15"
assert not attended[0, 6:].any(), f"padding gets {np.abs(attended[0, 6:]).max()}, expected 0"
unit = np.broadcast_to(np.eye(8)[:, None], (2, 8, 3, 8))  # with these values the results are the weights
one, two = ops.attention(q, k, unit, causal=True, documents=documents).data[:, :, 0]

# %%
save(drawings.three_masks(weights, one, two), FIGURES / "weights.png")

# %% [markdown]
# *Which results change if one token changes?* The results of this token and of the tokens after it; all other
# results keep their bits. So one forward pass makes a prediction at every place, and none of them has seen
# the token that it predicts. *What does a token of padding see?* Nothing; the op handles it as a special
# case, since a softmax of no scores would divide 0 by 0. *Why divide by sqrt(D)?* The product of two random
# vectors of D numbers is a sum of D terms, and its standard deviation grows like sqrt(D). Without the
# division one weight of many is nearly 1, and hardly any gradient passes:

# %%
changed = k + (np.arange(8) == 4)[:, None, None]
again = ops.attention(q, changed, v, causal=True, documents=documents).data
changes = np.flatnonzero((again != attended).any(axis=(0, 2, 3)))
print(f"   another key of token 4 changes the results of tokens {', '.join(map(str, changes))}")
assert changes.min() == 4 and changes.max() == 7, f"tokens {changes} change, expected 4 to 7"
print("      D   deviation of the scores   divided by sqrt(D)   largest of 16 weights")
for n in (4, 64, 1024):
    deviation, raw, scaled = measured.spread_of_scores(n, rng)
    print(f"   {n:4} {deviation:19.1f} {deviation / np.sqrt(n):22.2f} {raw:19.2f}, or {scaled:.2f}")
    assert abs(deviation / np.sqrt(n) - 1) < 0.05, f"D {n}: {deviation:.2f}, not {np.sqrt(n):.2f}"
assert raw > 0.9 and scaled < 0.4, f"largest weights {raw:.2f}, {scaled:.2f}; expected above 0.9, below 0.4"

# %% [markdown]
# Read: Vaswani et al. 2017, "Attention is all you need", arXiv:1706.03762, section 3.2.
#
# ## 2. A softmax can be computed in pieces
# A row of S tokens has S x S weights in each head. To compute them all and then multiply is simple, but the
# weights of long rows fill the memory. The softmax seems to need all scores of a query at once, for their
# sum. It does not: the result can be computed from *pieces* of the keys, which are also called *tiles*.
#
# A piece gives two numbers for a query: o, the mean of its values by the softmax of its own scores, and lse,
# the logarithm of the sum of their exponentials (*log-sum-exp*). Two pieces are merged by a mean of their two
# o, weighted by their two sums. An example with scores that are logarithms, ln 2 and ln 6 in one piece and ln
# 1 and ln 3 in the other, with the values 10, 20, 30, 40: the sums are 8 and 4, the means are (2 10 + 6 20) /
# 8 = 17.5 and (1 30 + 3 40) / 4 = 37.5, and together they are (8 17.5 + 4 37.5) / 12 = 24.17, with the sum
# 12.
#
# One thing needs care: exp(1000) is larger than all float64 numbers. So the largest score m is subtracted
# first, and everything is computed with exp(score - m). This does not change o, a quotient of two sums; and
# lse is m plus the logarithm of the new sum.

# %%
print("\n2. A softmax can be computed in pieces")


def tile(q, k, v):
    """The mean of the values by the scores of one query, and the log of the sum of their exponentials."""
    if not len(k):
        return np.zeros(v.shape[1]), -np.inf
    scores = k @ q
    m = scores.max()
    e = np.exp(scores - m)
    return e @ v / e.sum(), m + np.log(e.sum())


def merge(one, other):
    (o1, lse1), (o2, lse2) = one, other
    lse = np.logaddexp(lse1, lse2)  # log(exp(lse1) + exp(lse2)), computed without large numbers
    return o1 * np.exp(lse1 - lse) + o2 * np.exp(lse2 - lse), lse


one = np.array([1.0])
scores = np.log([[2.0], [6.0], [1.0], [3.0]])
left, right = tile(one, scores[:2], values[:2]), tile(one, scores[2:], values[2:])
(together,), lse = merge(left, right)
print(f"   pieces {left[0][0]:g} and {right[0][0]:g}, merged {together:.2f}, with the sum {np.exp(lse):.0f}")
assert abs(together - 290 / 12) < 1e-13, f"merged {together}, expected {290 / 12}"

# %% [markdown]
# The order does not matter. We cut 40 keys into five pieces, of which one is empty, and merge them in all 120
# orders. The scores are near 1000, so a softmax without the subtraction of m gives NaN. The library's two
# functions have the same names and take many queries at once (`minigrad/ops/fast/attention.py`; the loops
# that Numba compiles are in `attention_loops.py`, and `visibility.py` says which tiles the mask leaves out).

# %%
query, many = rng.normal(size=8), rng.normal(size=(40, 8))
many += 1000 * query / (query @ query)  # now each score is 1000 higher
results = rng.normal(size=(40, 3))
cuts = [(0, 5), (5, 17), (17, 17), (17, 30), (30, 40)]
pieces = [tile(query, many[a:b], results[a:b]) for a, b in cuts]
whole, _ = tile(query, many, results)
by_order = [reduce(merge, order)[0] for order in permutations(pieces)]
off = max(np.abs(o - whole).max() for o in by_order)
different = len({o.tobytes() for o in by_order})
print(f"   {len(by_order)} orders, {different} different results, all within {off:.0e} of the whole softmax")
assert off <= 1e-13, f"merged pieces are off by {off:.1e}, limit 1e-13"

theirs = [tiles.tile(query[None], many[a:b], results[a:b], True) for a, b in cuts if a < b]
total = reduce(lambda one, other: tiles.merge(*one, *other), theirs)
off = np.abs(total[0][0] - whole).max()
print(f"   the library's tile and merge: within {off:.0e} of the whole softmax")
assert off <= 1e-13, f"the library's pieces are off by {off:.1e}, limit 1e-13"

# %% [markdown]
# With pieces of one key each this is a loop that reads the scores once. It keeps three numbers for a query:
# the largest score so far, m; the sum of exp(score - m) so far, l; and the same sum with the values, o. (Then
# lse = m + log(l), and the result is o / l.) If a score is larger than m, m changes, and the two sums have
# the old m in them: they must be multiplied by exp(old m - new m). The line that does so is easily forgotten.

# %%
ROW, NUMBERS = np.log([2.0, 6, 2, 2, 12, 4, 8, 12]), 10.0 * np.arange(1, 9)


def one_by_one(scores, values, rescale=True):
    """The largest score, the sum and the result, m, l and o / l, after each score."""
    largest, total, o, path = -np.inf, 0.0, 0.0, []
    for score, value in zip(scores, values, strict=True):
        new = max(largest, score)
        if rescale:
            total, o = total * np.exp(largest - new), o * np.exp(largest - new)
        total, o, largest = total + np.exp(score - new), o + np.exp(score - new) * value, new
        path.append((largest, total, o / total))
    return np.array(path).T


right, wrong = one_by_one(ROW, NUMBERS), one_by_one(ROW, NUMBERS, rescale=False)
print("   score          " + "".join(f"ln {np.exp(s):<3.0f}" for s in ROW))
for name, (_, sums, results) in (("rescaled", right), ("not", wrong)):
    print(f"   l, {name:8}" + "".join(f"{x:6.2f}" for x in sums) + f"   result {results[-1]:.2f}")
softmax = ops.softmax(ROW[None], axis=1).data[0] @ NUMBERS
off = abs(right[2, -1] - softmax), abs(wrong[2, -1] - softmax) / softmax
print(f"   without the factor the result is wrong by {off[1]:.0%}")
assert off[0] < 1e-13 and off[1] > 0.1, f"rescaled: off by {off[0]:.0e}; not rescaled: by {off[1]:.0%}"

# %%
save(drawings.running_softmax(ROW, right, wrong), FIGURES / "pieces.png")

# %% [markdown]
# *What is the lse of no keys?* The logarithm of 0, -inf. Merging such a piece multiplies its result, 0, by
# exp(-inf) = 0, and changes nothing. *Why is `merge` associative only up to rounding?* Its results are
# rounded after each step, and the steps differ. *Which numbers must be sent if the pieces are on several
# ranks?* o and lse. m and l are not needed: o is already divided by l, and lse = m + log(l).
#
# Read: Milakov and Gimelshein 2018, "Online normalizer calculation for softmax", arXiv:1805.02867.
#
# ## 3. Memory need not grow with S squared
# Backward needs what forward computed (lesson 03). The readable form of part 1 keeps the weights of every
# row, head and query: B heads S S numbers. The form in pieces, as in part 2, never has all of them. Its
# backward computes them again, a tile at a time, from q, k and the lse of each query, as exp(score - lse).
# For this it keeps the result o and one lse for each query and head: B S (h + heads) numbers, where h = heads
# D is the *width*.
#
# The gradients, with p for the weights and g for the gradient of o: dv = pᵀ g. The gradient of the scores is
# p (dp - delta), where dp = g vᵀ, and delta is the sum of p dp over all keys. This looks like one more pass
# over the row. But delta is also the scalar product of g and o, so it is computed once, before the tiles.
# Here is the whole op for one head, with tiles of 16 keys:

# %%
print("\n3. Memory need not grow with S squared")


@op
def attention_in_pieces(q, k, v, *, size=16):
    scale, tiles = 1 / np.sqrt(q.shape[1]), [slice(a, a + size) for a in range(0, len(k), size)]

    def scores(keys):  # of all queries; -inf where a key comes after the query
        sees = np.arange(len(q))[:, None] >= np.arange(len(k))[None, keys]
        return np.where(sees, scale * (q @ k[keys].T), -np.inf)

    o, lse = np.zeros((len(q), v.shape[1])), np.full(len(q), -np.inf)
    for keys in tiles:
        s = scores(keys)
        new = np.logaddexp(lse, np.logaddexp.reduce(s, axis=1))
        o = o * np.exp(lse - new)[:, None] + np.exp(s - new[:, None]) @ v[keys]
        lse = new

    def gradients(g):
        delta, dq, dk, dv = (g * o).sum(axis=1), np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
        for keys in tiles:
            p = np.exp(scores(keys) - lse[:, None])
            ds = p * (g @ v[keys].T - delta[:, None]) * scale
            dq, dk[keys], dv[keys] = dq + ds @ k[keys], ds.T @ q, p.T @ g
        return dq, dk, dv

    all_three = once(gradients)
    return o, (lambda g: all_three(g)[0], lambda g: all_three(g)[1], lambda g: all_three(g)[2])


row = dict(zip("qkv", rng.normal(size=(3, 50, 8)), strict=True))
by_hand, nbytes = measured.gradients(lambda leaves: attention_in_pieces(*leaves.values()), row)
as_rows = {name: x[None, :, None] for name, x in row.items()}  # one sample, one head
right, _ = measured.gradients(lambda leaves: ops.attention(*leaves.values(), causal=True), as_rows)
off = measured.largest_error({name: x[0, :, 0] for name, x in right.items()}, [by_hand])
print(f"   50 tokens: value and gradients are within {off:.0e} of ops.attention; held {nbytes:,} bytes")
assert off <= 1e-13, f"in pieces: off by {off:.1e}, limit 1e-13"
assert nbytes == 8 * 50 * (8 + 1), f"held {nbytes} bytes, expected {8 * 50 * (8 + 1)}"

# %% [markdown]
# Now the library's two forms, in `minigrad/ops/attention.py` and `minigrad/ops/fast/attention.py`, with 4
# heads of 16 numbers. (q, k and v are held by the ops that computed them, and are not counted.)

# %%
LENGTHS = (64, 128, 256, 512, 1024)
readable = op(inspect.unwrap(ops.attention))  # without faster forms
forms = {"readable": (readable, 4), "in pieces": (ops.attention, 4 * (16 + 1))}
bytes_by_length = {name: [] for name in forms}
for name, (form, numbers) in forms.items():
    for length in LENGTHS:
        row = dict(zip("qkv", rng.normal(size=(3, 1, length, 4, 16)), strict=True))
        _, nbytes = measured.gradients(lambda leaves, form=form: form(*leaves.values(), causal=True), row)
        expected = 8 * numbers * length ** (2 if form is readable else 1)
        assert nbytes == expected, f"{name}, {length} tokens: {nbytes} bytes, expected {expected}"
        bytes_by_length[name].append(nbytes)
    print(f"   {name:9} KiB by tokens: " + "".join(f"{n / 1024:9.1f}" for n in bytes_by_length[name]))
slopes = [np.log2(nbytes[-1] / nbytes[-2]) for nbytes in bytes_by_length.values()]
assert slopes == [2, 1], f"twice the tokens: 2 to the power {slopes}, expected 2 and 1"

# %%
save(drawings.memory(LENGTHS, bytes_by_length), FIGURES / "memory.png")

# %% [markdown]
# *What is computed again?* The scores q kᵀ: backward has five products, and the readable form four. *Why is
# delta one number a query?* It is a sum over its keys: the sum of p v is o, so the sum of p dp is g times o.
# *When does the readable form hold less?* Where S is below D + 1.
#
# Read: Dao et al. 2022 (FlashAttention), arXiv:2205.14135, section 3; Dao 2023, arXiv:2307.08691.
#
# ## 4. A small transformer learns to write like this course
# A transformer is a *stack* of blocks. A block does two things, attention and a *feed-forward net*: two
# layers of neurons for each token alone, the first four times as wide as a token's vector. Around both there
# are two parts that make deep stacks possible:
#
# - a **norm** makes the numbers of a token's vector have the mean 0 and the standard deviation 1: (1, 3)
#   becomes (-1, 1). It has a learned factor and a learned bias for each number;
# - a **residual** is the sum x + f(x): the layer f computes what is added, and the vector itself is kept.
#
# *Pre-norm* means that the norm comes before f, and not after the sum: x + f(norm(x)). So the vector at the
# end is the input plus the results of all layers, and through this sum a gradient comes back to the input
# unchanged. If f doubles its input, (1, 3) becomes (1, 3) + 2 (-1, 1) = (-1, 5).
#
# The embedding (`token_embedding.py`) adds a learned vector for the place in the row, since attention itself
# does not see order. At the end the score of each possible next symbol is the scalar product of the token's
# vector and that symbol's row in the same table. So the table is used twice; such weights are called *tied*.

# %%
print("\n4. A small transformer learns to write like this course")
pair = np.array([[1.0, 3.0]])
normed = ops.layer_norm(pair, np.ones(2), np.zeros(2), eps=0.0).data
print(f"   the norm of (1, 3) is {normed[0]}; with a residual that doubles it: {(pair + 2 * normed)[0]}")
assert (pair + 2 * normed == [[-1, 5]]).all(), f"residual {(pair + 2 * normed)[0]}, expected -1 and 5"

LENGTH, ROWS, EPOCHS, RATE = 32, 32, 6, 8e-3
prose = text.text(LENGTH)
V = len(prose.symbols)
net = transformer(np.random.default_rng(0), symbols=V, length=LENGTH, width=64, heads=4, blocks=1)
print(f"   {prose.train.y.size:,} symbols to learn from, {prose.test.y.size:,} to test on, of {V} kinds")
print(f"   {sum(p.size for p in net.parameters()):,} parameters in", ", ".join(type(m).__name__ for m in net))

# %% [markdown]
# The *text* is the prose of this course without this lesson (`minigrad/text.py`), in rows of 32 symbols. A
# symbol is a letter, a digit or a sign. The loss is the cross-entropy of the next symbol, in *nats*: the mean
# of -log(probability that the net gave to the symbol that came). What is a good loss? Compare three numbers:
#
# - log V, if all V symbols get the same probability, as at the start;
# - the loss of a net that knows how frequent each symbol is, and looks at nothing;
# - the loss of a table of pairs, which knows how often each symbol follows each other one.

# %%
of_letters, of_pairs = measured.losses_of_tables(prose.train, prose.test, V)
print(f"   log V {np.log(V):.2f}; frequencies of symbols {of_letters:.2f}, of pairs {of_pairs:.2f}")


def note(step, _):
    if (step + 1) % 147 == 0:
        progress[step + 1] = float(token_mean(net(prose.test.x), prose.test.y).data)


token_mean = nn.CrossEntropyLoss(ignore_index=-1, class_axis=-1)  # over the tokens whose label is not -1
progress = {}
note(-1, None)  # before the first step
schedule = warm_up(cosine(RATE, EPOCHS * -(-len(prose.train) // ROWS)), 20, 0.0)
adam = optim.AdamW(net.parameters(), lr=RATE)
fit(net, adam, token_mean, prose.train, epochs=EPOCHS, batch_size=ROWS, schedule=schedule, on_step=note)
print("   step      " + "".join(f"{step:6}" for step in progress))
print("   test loss " + "".join(f"{loss:6.2f}" for loss in progress.values()))
*_, last = progress.values()
bits = [loss / np.log(2) for loss in (np.log(V), of_pairs, last)]
print(f"   bits a symbol: {bits[0]:.2f} at the start, {bits[1]:.2f} by pairs, {bits[2]:.2f} by the net")
assert abs(progress[0] - np.log(V)) < 0.2, f"the first loss is {progress[0]:.2f}, log V is {np.log(V):.2f}"
assert last < of_pairs - 0.4, f"test loss {last:.2f}, by pairs {of_pairs:.2f}; expected 0.4 below it"

# %%
save(drawings.losses(progress, of_letters, of_pairs, np.log(V)), FIGURES / "losses.png")

# %% [markdown]
# Attention sees more than one letter back, so the net's loss becomes smaller than the loss of the table of
# pairs. To *write*, the net starts from a few letters, draws the next symbol with the probabilities that it
# computes, appends it, and repeats this. (Scores are first divided by a *temperature* of 0.7, which makes
# probable symbols more probable.)

# %%


def written(start, n, temperature):
    row, draw = list(start), np.random.default_rng(5)
    for _ in range(n):
        scores = net(np.array([row[-LENGTH:]])).data[0, -1].astype(float) / temperature
        chances = np.exp(scores - scores.max())
        row.append(draw.choice(V, p=chances / chances.sum()))
    return row[len(start) :]


start = [prose.symbols.index(byte) for byte in b"The gradient "]
more = generate(net, start, 300, length=LENGTH, temperature=0.7, rng=5)
same = int((more[:60] == written(start, 60, 0.7)).sum())
assert same == 60, f"{same} of 60 symbols are those of the library's generate"
for text_line in textwrap.wrap(bytes(prose.symbols[i] for i in [*start, *more]).decode(), 74):
    print("   " + text_line)

# %% [markdown]
# It has learned which letters make words and where spaces belong; it knows no meaning. `minigrad train --net
# transformer` trains a larger net, with width 128, 2 blocks and rows of 64 symbols, and prints its loss next
# to the losses of the two tables. `minigrad generate` lets a saved model write.
#
# *Why is the first loss log V?* The table begins with numbers near 0, so all scores are nearly equal, and all
# V symbols get 1 / V. *What would a table of pairs reach, and why not less?* The loss of pairs above: it
# knows the letter before, and nothing else about the word. *How many bits a letter is that?* Its loss in
# nats, divided by log 2; it is printed above.
#
# Read: Radford et al. 2019 (GPT-2), "Language models are unsupervised multitask learners", section 2.
#
# ## 5. Heads are neurons
# Lesson 11 splits a layer by neurons: the first matrix by columns, the second by rows, and one sum at the
# end. Attention has the same form. Queries, keys and values are one product with a matrix, *qkv*, whose rows
# are neurons, head by head. Each head computes alone. The product with a second matrix, *out*, adds up the
# results of all heads. So a rank can have some of the heads: their rows of qkv, and their columns of out. The
# feed-forward net after it is the pair of lesson 11.
#
# Before both, a block applies the op f of lesson 11, and after both the op g: f, `fan_out`, does nothing in
# forward and an all-reduce in backward; g, `fan_in`, does an all-reduce in forward and nothing in backward.
# Norms and residuals are computed on every rank. The picture shows which rows and columns a rank has (`cut`
# in split_block.py); here is the block, by hand. The bias of out is added after the sum: if it were added
# before, every rank would add it.

# %%
print("\n5. Heads are neurons")
qkv, out = (owners(f"attention.{name}.weight", ranks=3) for name in ("qkv", "out"))

# %%
save(drawings.who_holds_what(qkv, out, D), FIGURES / "who_holds_what.png")

# %%


def attend(x, qkv, out):
    """What some heads add to the sum; ``qkv`` are their rows, and ``out`` their columns."""
    shape = (*x.shape[:2], out.shape[1] // D, 3 * D)  # a head's queries, keys and values follow one another
    q, k, v = ops.split(ops.reshape(ops.linear(x, qkv), shape=shape), sections=3, axis=3)
    o = ops.attention(q, k, v, causal=True)
    return ops.linear(ops.reshape(o, shape=(*x.shape[:2], out.shape[1])), out)


def split_block(w, f, g):
    x = w["x"] + 0.0  # as if x came from another block
    h = f(ops.layer_norm(x, w["norm1.weight"], w["norm1.bias"]))
    x = x + g(attend(h, w["attention.qkv.weight"], w["attention.out.weight"])) + w["attention.out.bias"]
    h = f(ops.layer_norm(x, w["norm2.weight"], w["norm2.bias"]))
    h = ops.gelu(ops.linear(h, w["feed_forward.0.weight"], w["feed_forward.0.bias"]))
    return x + g(ops.linear(h, w["feed_forward.2.weight"])) + w["feed_forward.2.bias"]


def by_heads(comm):
    comm = measured.Counted(comm)
    f, g = partial(differentiable.fan_out, comm=comm), partial(differentiable.fan_in, comm=comm)
    arrays, nbytes = measured.gradients(partial(split_block, f=f, g=g), {"x": tokens} | part_of(comm))
    return arrays, nbytes, comm.sent, comm.allreduces


for ranks in (2, 3, 5):
    results = run_ranks(ranks, by_heads)
    off = measured.largest_error(serial, [arrays for arrays, *_ in results], cut)
    calls = {calls for *_, calls in results}
    heads = ", ".join(str(share.stop - share.start) for share in shares(HEADS, ranks))
    print(f"   heads by rank {heads}: off by {off:.0e}, all-reduces {calls}")
    assert off <= 1e-12, f"{ranks} ranks: gradients are off by {off:.1e}, limit 1e-12"
    assert calls == {4}, f"{ranks} ranks: {calls} all-reduces, expected 4"

# %% [markdown]
# In the library a plan splits a block by "heads" (`backends/model_parallel/layers/heads.py`), and the table
# of symbols by "vocabulary" (`vocabulary.py`): each rank has some rows, and a sum brings all vectors to all.

# %%
PLAN = {"0": "vocabulary", "1": "heads", "3": "vocabulary"}
small = partial(transformer, symbols=20, length=S, width=WIDTH, heads=HEADS, blocks=1)
symbols = Batch(*rng.integers(0, 20, size=(2, B, S)))
off = measured.error_in_training(partial(ModelParallel, plan=PLAN), 3, small, token_mean, symbols)
print(f"   the library's, by heads, three ranks: off by {off:.0e}")
assert off <= bound_for(float), f"three ranks: off by {off:.1e}, limit {bound_for(float):.0e}"

# %% [markdown]
# *Why has qkv no bias?* A bias of the keys adds the same number to all scores of a query, and no softmax
# changes by that. Its gradient is 0; on a computer it would be rounding errors, from which Adam would make
# full steps. *What does a rank without heads do?* It adds zeros, and takes part in all four all-reduces; the
# others would wait for it. *Where must the bias of out be added?* After the sum, once.
#
# Read: Shoeybi et al. 2019 (Megatron-LM), arXiv:1909.08053, section 3.
#
# ## 6. The same bytes, less memory
# If a block is split by heads, all ranks hold all tokens between the products: the inputs of the norms, and
# their results. An all-reduce around a ring (lesson 05) is two things, a *reduce-scatter*, after which each
# rank has the sum of its part, and an *all-gather*, which gives all parts to all ranks. Megatron's second
# form does norms and residuals between the two: after the reduce-scatter each rank has only some of the
# tokens, and before the next product an all-gather gives it the others. So f becomes an all-gather and g a
# reduce-scatter, and nothing else in the block changes.
#
# A rank then uses the parameters of the norms, and the two biases after the sums, only for its own tokens. So
# it has only a part of the gradients of these parameters; they are few, and are summed over the ranks at the
# end of the step.

# %%
print("\n6. The same bytes, less memory")
LSE, NORMS = HEADS / WIDTH, (4 if loops.available() else 2) / WIDTH  # Numba's norm keeps its mean, too


def by_tokens(comm):
    comm, of_ranks = measured.Counted(comm), shares(S, comm.size)
    f = partial(differentiable.all_gather, comm=comm, axis=1)
    g = partial(differentiable.reduce_scatter, comm=comm, axis=1)
    mine = {"x": tokens[:, of_ranks[comm.rank]]} | part_of(comm)
    arrays, nbytes = measured.gradients(partial(split_block, f=f, g=g), mine)
    sent = comm.sent
    for name in ("y", "x"):
        arrays[name] = np.concatenate(allgather(comm, arrays[name]), axis=1)
    for name in parameters:
        if not cut(name, comm.rank, comm.size):
            arrays[name] = ring_allreduce(comm, arrays[name])
    return arrays, nbytes, sent


def numbers_held(p):
    """Over B S h: 16 arrays like x, some split; one lse a head; means and scales of two norms."""
    return {"heads": 4 + NORMS + (12 + LSE) / p, "tokens": 2 + (14 + LSE + NORMS) / p}


# %%
bars, size = {"one rank": (numbers_held(1)["heads"],) * 2}, B * S * WIDTH
for ranks in (1, 2, 3, 4):
    for by, form, whole in (("heads", by_heads, 4 + NORMS), ("tokens", by_tokens, 2)):
        results = run_ranks(ranks, form)
        off = measured.largest_error(serial, [arrays for arrays, *_ in results], cut)
        assert off <= 1e-12, f"{ranks} ranks, {by}: gradients are off by {off:.1e}, limit 1e-12"
        memory, (messages, nbytes) = results[0][1] / 8 / size, results[0][2]
        print(f"   {ranks} ranks by {by:6}: off by {off:.0e}, holds {memory:.4f}, sends {nbytes} bytes")
        if ranks != 3:  # which does not divide the heads
            expected = numbers_held(ranks)[by], 8 * (ranks - 1), 8 * 8 * (ranks - 1) * size // ranks
            counts = memory, messages, nbytes
            assert counts == expected, f"{ranks} ranks, {by}: {counts}, by the formulas {expected}"
        if ranks == 2:
            bars[f"two, by {by}"] = memory, whole
for again in (False, True):
    by_library = partial(ModelParallel, plan=PLAN, split_tokens=True, gather_again=again)
    off = measured.error_in_training(by_library, 3, small, token_mean, symbols)
    print(f"   the library's, by tokens, three ranks{', gathered again' * again}: off by {off:.0e}")
    assert off <= bound_for(float), f"three ranks: off by {off:.1e}, limit {bound_for(float):.0e}"

# %%
save(drawings.activation_bars(bars), FIGURES / "activations.png")

# %% [markdown]
# The unit is B S h numbers, the size of x. The hatched part of a bar is not divided by the number of ranks.
# By heads it is 4, the inputs and outputs of two norms. By tokens it is 2, the gathered inputs of qkv and of
# the first layer of neurons, which the gradients of these weights need. In the paper a rank keeps only its
# own tokens of these, too, and backward gathers them again. The library has all three forms (`tokens.py`, in
# the folder of `heads.py`); `backends/model_parallel/activation_memory.py` has their formulas.
#
# *What does gathering again cost?* Two more all-gathers for a block: on p ranks each sends 10 (p - 1) / p
# times B S h numbers, instead of 8 (p - 1) / p. *Why `all_gather` and not `join_in`, which gathers as well?*
# Each rank computes its own heads with all tokens, so the backward of `all_gather` sums the gradients of all
# ranks. The backward of `join_in` takes the rank's own gradient, as if all ranks computed the same. *Whose
# gradients become partial?* Those of the norms and of the two biases.
#
# Read: Korthikanti et al. 2022, arXiv:2205.05198, section 4.
#
# ## 7. A ring of keys
# In part 5, and in part 6 as well, each rank has all tokens of a row before a product. A row can be too long
# for that. So now ranks share the tokens from the first layer to the last: each rank has all
# weights, some tokens, and the part of these tokens of everything that backward needs. A layer that treats
# each token alone needs no change. Attention does, because a query may see keys that another rank has.
#
# In *ring attention* each rank keeps its queries, and keys and values travel. In step t = 0, ..., p - 1 rank
# r has the keys and values of rank r - t (numbers of ranks are meant modulo p). It computes the attention of
# its queries to them, merges it with its result so far, as in part 2, and passes the keys and values on to
# rank r + 1. After p steps each query has met all keys. `columns` says which places of the row each rank has,
# and so what a query may see.

# %%
print("\n7. A ring of keys")


def ring_by_hand(comm, q, k, v, columns):
    p, rank, here, result = comm.size, comm.rank, [k, v], None
    for t in range(p):
        mask = BlockMask((columns[rank], columns[(rank - t) % p]), None)  # no key after the query
        piece = attend_to_block(q, *here, mask)
        result = piece if result is None else merge_blocks(*result, *piece)
        if t < p - 1:
            here = [send_recv(comm, x, (rank + 1) % p, (rank - 1) % p, Tag.KEYS) for x in here]
    o, lse = result
    return o


long_row = dict(zip("qkv", rng.normal(size=(3, B, 13, HEADS, D)), strict=True))
whole, _ = measured.gradients(lambda leaves: ops.attention(*leaves.values(), causal=True), long_row)


def on_the_ring(comm, order):
    """What three forms of the ring give for this rank's tokens: by hand, the slide's, the library's."""
    columns = columns_of(13, comm.size, order)
    own = {name: x[:, columns[comm.rank]] for name, x in long_row.items()}
    settings = {"comm": comm, "columns": columns}
    slide, _ = measured.gradients(lambda leaves: naive_ring_attention(*leaves.values(), **settings), own)
    fast, _ = measured.gradients(lambda leaves: ring_attention(*leaves.values(), **settings), own)
    return {"y": ring_by_hand(comm, *own.values(), columns)}, slide, fast


# %%
for order in ("contiguous", "zigzag"):
    for ranks in (1, 2, 3, 5):
        columns = columns_of(13, ranks, order)
        by_form = zip(*run_ranks(ranks, partial(on_the_ring, order=order)), strict=True)
        own_part = {"y": whole["y"]}, whole, whole
        off = max(
            measured.largest_error(right, results, lambda name, rank, _, c=columns: np.s_[:, c[rank]])
            for right, results in zip(own_part, by_form, strict=True)
        )
        lengths = ", ".join(str(len(own)) for own in columns)
        print(f"   {order:10} tokens by rank {lengths}: off by {off:.0e}")
        assert off <= 1e-12, f"{ranks} ranks, {order}: off by {off:.1e}, limit 1e-12"

# %% [markdown]
# Backward sends keys and values around the ring once more. The gradient of a query stays on its rank. But a
# key was seen on all ranks, and each rank has a term of its gradient. So the gradients travel with their
# keys, and each rank adds its term; one more message brings them back to the rank of their keys. `naive.py`
# in `backends/sequence_parallel` is the loop above with its backward. `ring.py` sends the next keys while it
# computes with these, so that a message costs no time if it is faster than the product. The attention to one
# block of keys, with its gradients, is in `tiles.py`, and in `fast_tiles.py` by tiles that fit into the
# cache.
#
# *Who waits?* With a causal mask the steps are not equally long. We count time in *pairs*, a query and a key
# that it sees, since each pair takes the same two products. Four tokens on two ranks in *plain* order: rank 0
# has tokens 0 and 1, rank 1 has 2 and 3. In step 0 both work on their own keys, and have 3 pairs: the first
# token sees itself, the second one both. In step 1 rank 1 sees all keys of rank 0, 4 pairs, and rank 0 sees
# nothing, since all keys of rank 1 are later: it waits. The two steps last 3 + 4 = 7 pairs.
#
# In *zig-zag* order rank 0 has tokens 0 and 3, a cheap one and an expensive one, and rank 1 has 1 and 2. Step
# 0 has 3 pairs on both ranks, and step 1 has 2 on both: token 3 sees tokens 1 and 2, and both of these see
# token 0. That lasts 5 pairs, and no rank waits. In general the row is cut into 2 p blocks, and rank r has
# block r from the front and block r from the back. `columns_of` in `token_order.py` makes both orders, and
# `pairs_of` counts.

# %%


def steps_of(pairs):
    """How long each step lasts: the largest number of pairs that any rank has in it."""
    p = len(pairs)
    return [max(int(pairs[rank, (rank - t) % p]) for rank in range(p)) for t in range(p)]


lanes = {}
efficiency = {}
print("   tokens  ranks   plain  zig-zag   quotient   2 - 1/p")
for length, p, expected in ((4, 2, (7, 5)), (64, 4, (904, 520)), (128, 8, (1928, 1032)), (8192, 8, None)):
    pairs = [pairs_of(columns_of(length, p, order)) for order in ("contiguous", "zigzag")]
    plain, zigzag = (sum(steps_of(counts)) for counts in pairs)
    n, limit = length // p, 2 - 1 / p
    print(f"   {length:6} {p:6} {plain:7} {zigzag:8} {plain / zigzag:10.4f} {limit:9.4f}")
    formulas = (p - 1) * n * n + n * (n + 1) // 2, (p * n * n + n) // 2
    assert (plain, zigzag) == (expected or formulas) == formulas, f"{plain}, {zigzag}; expected {formulas}"
    assert zigzag * p == length * (length + 1) // 2, f"{zigzag} pairs on each of {p}, not an even share"
    efficiency = {
        name: length * (length + 1) / 2 / (p * time) for name, time in (("plain", plain), ("zig-zag", zigzag))
    }
    if length == 64:
        lanes = dict(zip(("plain", "zig-zag"), pairs, strict=True))
assert abs(plain / zigzag - limit) < 1e-3, f"quotient {plain / zigzag:.4f}, expected {limit:.4f}"

# %%
save(drawings.ring_lanes(lanes, steps_of), FIGURES / "ring.png")

# %%
print(
    "   of their time 8 ranks compute: "
    + ", ".join(f"{name} {part:.1%}" for name, part in efficiency.items())
)
assert abs(efficiency["plain"] - 8 / 15) < 1e-3 and efficiency["zig-zag"] == 1, efficiency

off = measured.error_in_training(partial(SequenceParallel, form="ring"), 3, small, token_mean, symbols)
print(f"   the library's transformer on a ring of three ranks: off by {off:.0e}")
assert off <= bound_for(float), f"three ranks: off by {off:.1e}, limit {bound_for(float):.0e}"

# %% [markdown]
# In plain order each step but the first lasts as long as a full tile of n n pairs, with n = S / p tokens on
# each rank; in zig-zag order it lasts half as long. So zig-zag is nearly twice as fast, 2 - 1/p times for
# long rows: 8 ranks compute in p / (2 p - 1) = 53.3 % of their time, or in all of it. On eight H800 GPUs the
# project ring-flash-attention measured 52.1 % and 85.2 % for the two, forward, against one GPU with an eighth
# of the work (the table in its README, read at commit 01c8baf). Waiting alone explains the first number; what
# zig-zag order loses there comes from messages and smaller tiles.
#
# `python -m minigrad_course.explorables` writes a page, runs/explorables/ring.html, in which you give blocks
# of tokens to ranks and see who waits. Assignment [a10](../assignments/a10_ring_attention/README.md) asks you
# to write the ring, forward and backward.
#
# *In which steps does rank 0 wait in plain order?* All but the first: the keys of all other ranks are later
# than its queries. *Why does zig-zag not help without a causal mask?* Each query sees all keys then, and all
# tiles are full in any order. *Why may a rank not skip the message of keys that it does not see?* The next
# rank gets these keys from it, and may see them.
#
# Read: Liu, Zaharia and Abbeel 2023, "Ring attention with blockwise transformers", arXiv:2310.01889, section
# 3; Llama 3, arXiv:2407.21783, section 3.3.2.
#
# ## 8. All-to-all: all tokens of some heads
# The ring brings the keys to the queries. One can also cut the array along another axis. The input of
# attention has the shape (B, tokens, heads, 3 D), with queries, keys and values in the last axis, and each
# rank has some tokens of all heads. In an *all-to-all* each rank sends a different piece to each other rank.
# Here a rank cuts its part by heads, and joins the pieces that it receives along the tokens. Then it has
# *all* tokens of *some* heads, and computes their attention as one machine does, with any mask. A second
# all-to-all undoes this for the result.
#
# Four tokens and two heads on two ranks: rank 0 has tokens 0 and 1 of both heads. It keeps their
# part in head 0, sends their part in head 1, and receives tokens 2 and 3 of head 0. So it sends half of what
# it has.

# %%
print("\n8. All-to-all: all tokens of some heads")
TOKENS, HEAD = 1, 2  # axes
turn = partial(differentiable.all_to_all, axis=HEAD, to_axis=TOKENS)
turn_back = partial(differentiable.all_to_all, axis=TOKENS, to_axis=HEAD)


def by_turns(qkv, comm, columns):
    heads = [share.stop - share.start for share in shares(HEADS, comm.size)]
    qkv = turn(qkv, comm=comm, sizes=heads)  # all tokens, the heads of this rank
    o = ops.self_attention(qkv, causal=True)
    return turn_back(o, comm=comm, sizes=[len(own) for own in columns])


qkv = rng.normal(size=(B, S, HEADS, 3 * D))
whole, _ = measured.gradients(lambda leaves: ops.self_attention(leaves["qkv"], causal=True), {"qkv": qkv})


def attended_on(comm, form, order):
    """The result and the gradient for this rank's tokens, and the messages and bytes that it sent."""
    comm, columns = measured.Counted(comm), columns_of(S, comm.size, order)
    own = {"qkv": qkv[:, columns[comm.rank]]}
    arrays, _ = measured.gradients(lambda leaves: form(leaves["qkv"], comm=comm, columns=columns), own)
    return arrays, comm.sent


# %% [markdown]
# How many numbers is that, in units of B S h, the size of x? A rank has 1 / p of each of four arrays:
# queries, keys, values and the result. It sends all but 1 / p of its part, in forward and again in backward:
# 8 (p - 1) / p². On the ring it sends 1 / p of keys and values in each of p - 1 hops, and in backward keys,
# values and the gradients of both: 6 (p - 1) / p. The tokens of part 6 take 8 (p - 1) / p for a block. So the
# ring, the all-to-all and part 6 send 6 : 8 / p : 8.

# %%
FORMS = {"ring": (ring_self_attention, "zigzag", 3), "all-to-all": (by_turns, "contiguous", 4)}
sent = {name: {1: 0.0} for name in (*FORMS, "tokens of part 6")}
for ranks in (2, 3, 4):
    for name, (form, order, messages) in FORMS.items():
        results = run_ranks(ranks, partial(attended_on, form=form, order=order))
        columns = columns_of(S, ranks, order)
        off = measured.largest_error(
            whole, [arrays for arrays, _ in results], lambda name, rank, _, c=columns: np.s_[:, c[rank]]
        )
        counts = results[0][1]
        print(f"   {ranks} ranks, {name:10}: off by {off:.0e}, {counts[0]} messages, {counts[1]} bytes")
        assert off <= 1e-12, f"{ranks} ranks, {name}: off by {off:.1e}, limit 1e-12"
        assert counts[0] == messages * (ranks - 1), f"{counts[0]} messages, not {messages * (ranks - 1)}"
        if ranks != 3:  # which divides neither the heads nor the tokens
            sent[name][ranks] = counts[1] / 8 / size
for ranks in (2, 4):
    sent["tokens of part 6"][ranks] = run_ranks(ranks, by_tokens)[0][2][1] / 8 / size
    counts = [by_ranks[ranks] * ranks / (ranks - 1) for by_ranks in sent.values()]
    print(f"   {ranks} ranks: " + ", ".join(f"{name} {n:g}" for name, n in zip(sent, counts, strict=True)))
    assert counts == [6, 8 / ranks, 8], f"{ranks} ranks: {counts}, expected 6, {8 / ranks} and 8"
off = measured.error_in_training(partial(SequenceParallel, form="ulysses"), 3, small, token_mean, symbols)
print(f"   the library's transformer by all-to-alls, three ranks: off by {off:.0e}")
assert off <= bound_for(float), f"three ranks: off by {off:.1e}, limit {bound_for(float):.0e}"
factors = {
    "ring": lambda p: 6 + 0 * p,
    "all-to-all": lambda p: 8 / p,
    "tokens of part 6": lambda p: 8 + 0 * p,
}

# %%
save(drawings.turned_array(S, HEADS, 4, sent, factors), FIGURES / "turned.png")

# %% [markdown]
# If ranks and tokens grow together, a rank sends about as much by all-to-alls as before: 8 / p of a row that
# is p times as long. In the library this is `ulysses.py`, called after the paper's DeepSpeed-Ulysses;
# `SequenceParallel` (`sequence_parallel.py`) takes `form="ring"` or `form="ulysses"`, and gives each pass
# a `SplitTokens` (`split_tokens.py`), from which layers get attention, places and masks.
#
# *What limits p?* The number of heads: a rank without a head only passes tokens on. *Why is no rank slower
# than the others?* Each rank has all tokens of its heads. If p divides the heads, all compute as many pairs;
# if not, some ranks have one head more than others. *When is the ring better?* Where there are more ranks
# than heads, or where its messages are hidden by the tiles: an all-to-all ends before attention can
# start.
#
# Read: Jacobs et al. 2023 (DeepSpeed-Ulysses), arXiv:2309.14509, section 3.
#
# ## 9. Packed documents, one mean
# Documents have different lengths, and arrays have rows of one length. One document in each row, filled up
# with padding, wastes most of the work. So several documents are *packed* into a row, and the mask of part 1
# keeps them apart. Three more things must be right:
#
# - *Positions start again*: the first letter of a document is at place 0, wherever it is in the row.
# - *Labels*: the label of a letter is the letter after it. The last letter of a document has no label,
#   since another document follows. It gets -1, as padding does, which is not counted.
# - *One mean*: the loss is the mean over all labels that count, in the whole batch.
#
# Here are five documents in rows of 12 letters, each in the first row with room for it (packing.py).

# %%
print("\n9. Packed documents, one mean")
DOCUMENTS = "sequences", "a_tape", "heads", "key", "we"
x, y = packed(DOCUMENTS)
alone = [packed([text]) for text in DOCUMENTS]
for i, row in enumerate(x):
    print(f"   row {i}: {shown(row)}, {(y[i] >= 0).sum()} labels count")
share = [1 - (rows[..., 2] >= 0).mean() for rows in (x, np.concatenate([row for row, _ in alone]))]
print(f"   padding: {share[0]:.0%} of the tokens, {share[1]:.0%} with one document in a row")

# %%
save(drawings.packed_rows(x, y), FIGURES / "packed.png")

# %% [markdown]
# `PackedNet`, in packing.py, is the library's transformer with these places and documents. The loss is that
# of part 4: the sum of the losses of all labels that count, divided by their number. The reference computes
# each document alone, without padding and without masks.

# %%
net = PackedNet(np.random.default_rng(0)).to(dtype=np.float64)
sizes = [len(document) for document in DOCUMENTS]


def one_by_one_document():
    losses = [token_mean(net(x[:, :n]), y[:, :n]) * (n - 1) for n, (x, y) in zip(sizes, alone, strict=True)]
    return sum(losses[1:], losses[0]) / sum(n - 1 for n in sizes)


def mean_of_means():
    means = [token_mean(net(x[i : i + 1]), y[i : i + 1]) for i in range(len(x))]
    return sum(means[1:], means[0]) / len(means)


loss, gradient = measured.loss_and_gradients(net, one_by_one_document)
for name, form in (("packed", lambda: token_mean(net(x), y)), ("mean of means", mean_of_means)):
    own_loss, own = measured.loss_and_gradients(net, form)
    off = np.abs(own - gradient).max() / np.abs(gradient).max()
    print(
        f"   {name:13}: loss off by {abs(own_loss - loss):.0e}, gradients by {off:.0e} of the largest element"
    )
    right = max(off, abs(own_loss - loss)) <= 1e-12 if name == "packed" else off > 0.1
    assert right, f"{name}: loss off by {abs(own_loss - loss):.1e}, gradients by {off:.1e}"

# %% [markdown]
# Ranks that divide by the number of their own labels compute a mean of means, too. `WeightedMean` takes a sum
# and a divisor, which it computes for the labels of the whole batch; every rank knows these, so this needs no
# message. We add a row of padding: on four ranks one rank has nothing to learn from. A training with the
# wrong loss does not even start: a backend compares the loss of a few samples with the losses of their parts.

# %%
batch = Batch(*packed(DOCUMENTS, padding_rows=1))
by_hand = WeightedMean(lambda scores, y: token_mean.sum(scores, y), lambda y: (y >= 0).sum())


def own_mean(scores, y):
    """Wrong: divided by the labels of this rank."""
    return token_mean.sum(scores, y) * (1 / max((y >= 0).sum(), 1))


for ranks in (2, 4):
    off = measured.error_in_training(DataParallel, ranks, PackedNet, by_hand, batch)
    print(f"   {ranks} ranks, WeightedMean: gradients off by {off:.0e}")
    assert off <= bound_for(float), f"{ranks} ranks: off by {off:.1e}, limit {bound_for(float):.0e}"
try:
    refusal = f"off by {measured.error_in_training(DataParallel, 2, PackedNet, own_mean, batch):.0%}"
except ValueError as error:
    refusal = str(error)
print(f"   own means: {refusal.partition(':')[2].partition(',')[0].strip()}")
assert "no mean over samples" in refusal, f"{refusal}: 0 errors, expected 1"

# %% [markdown]
# *Which labels of a document count?* All but the last one, n - 1 of n letters. *What divides the loss on a
# rank with padding only?* The number of labels of the whole batch, as on all ranks; its sum is 0. *Why do
# positions start again?* The net adds a learned vector to each place. A document that starts at place 9 would
# get the vectors of places 9 to 11, and so another result than if it were alone.
#
# Read: Krell et al. 2021, "Efficient sequence packing without cross-contamination", arXiv:2107.02027.

# %%
print(f"\nFigures: {FIGURES}/")

# %% [markdown]
# ## What was proved
# - Attention, whole or in tiles, gives each query the mean of the values that it may see, with any mask, and
#   its gradients are the differences: [tests](../../tests/minigrad/ops/test_attention.py).
# - A block that is split by heads, or by heads and tokens, has the results and gradients of one machine, for
#   any number of ranks: by [heads](../../tests/backends/model_parallel/layers/test_heads.py), by
#   [tokens](../../tests/backends/model_parallel/layers/test_tokens.py).
# - On a ring and by all-to-alls attention has the results and gradients of one machine, for any shares of the
#   tokens, and sends as many bytes as the formulas:
#   [tests](../../tests/backends/sequence_parallel/test_ring.py).
# - A training with shared tokens has the gradients of one machine, also together with data parallelism and
#   pipelines: [tests](../../tests/backends/sequence_parallel/test_sequence_parallel.py).
# - The mean over the labels of a whole batch is the same on any number of ranks:
#   [tests](../../tests/backends/test_weighted_mean.py).
#
# Proved only by this lesson's assertions, for its cases: the bytes held for rows of up to 1,024 tokens, and
# that zig-zag order shares the pairs of a ring evenly. Not proved: the test loss, which depends on the text
# and on the seed, and all speeds.
#
# Next: [lesson 18](../18_experts/lesson.py): the other half of a block, its feed-forward net, can have many
# times more weights without more work for a token.
