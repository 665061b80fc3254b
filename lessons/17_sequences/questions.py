"""Questions on lesson 17: predict, change, prove. There is one for each part.

Write a letter into each prediction before you change anything. Then make the edit that the question asks for,
and run minigrad lesson 17 --check.
"""

from backends.comm import differentiable

# %% [markdown]
# ## 1. What a token can change
# Six tokens, with a causal mask. If token 0 gets another embedding, the results of attention change for all
# six. Edit: token 3 gets another embedding instead. Which results change? (All others keep their bits.)
#
# - a: the results of tokens 0 to 3, from which token 3 takes its mean
# - b: the results of tokens 3, 4 and 5
# - c: all, by a little: the weights of a row have the sum 1

# %%
PREDICTION_1 = ""
TOKEN_THAT_CHANGES = 0

# %% [markdown]
# ## 2. A tile without keys
# A query may see no key of a tile. The result of such a tile is 0, and its lse is the number below. With an
# lse of 0 the tile counts as one more key, with the score 0 and the value 0, and the merged result is wrong.
# Edit: let lse be float("-inf"), the logarithm of a sum of nothing. What happens when such a tile is merged?
#
# - a: the result becomes NaN: -inf - -inf is computed
# - b: the result is right up to rounding, but some bits change with each empty tile
# - c: nothing: the result has the same bits as without the tile

# %%
PREDICTION_2 = ""
LSE_WITHOUT_KEYS = 0.0

# %% [markdown]
# ## 3. Short rows
# One row, four heads of 16 numbers, float64. For 512 tokens the readable form of attention holds 8,192 KiB
# for backward, and the form in pieces 272 KiB. Edit: take 8 tokens. Which form holds less then?
#
# - a: in pieces: it holds less for any number of tokens
# - b: the readable one: 64 weights a head are fewer numbers than results of 8 tokens
# - c: both hold the same: a row of 8 tokens is one tile

# %%
PREDICTION_3 = ""
TOKENS = 512

# %% [markdown]
# ## 4. A certain beginning
# The tables of a transformer begin with random numbers of the standard deviation below, and the loss of 92
# symbols before any training is log 92 = 4.52, to 0.1. Edit: let the deviation be 1, fifty times as much. The
# norms still give the vectors before the last product the same size. What is the first loss?
#
# - a: more than 10: scores are far apart, and the net is certain of symbols that do not come
# - b: 4.52 again: random scores are right for one symbol of 92 on average
# - c: less than 4.52: larger numbers tell the symbols apart

# %%
PREDICTION_4 = ""
DEVIATION = 0.02

# %% [markdown]
# ## 5. A bias for the keys
# Attention with one head of four numbers. A bias is added to the vectors named below. The gradient of a bias
# of the queries is about 1. Edit: add the bias to the "keys". What is its gradient?
#
# - a: about 1: queries and keys play the same part in a product
# - b: 0, up to rounding
# - c: the same numbers with the other sign

# %%
PREDICTION_5 = ""
BIAS_OF = "queries"

# %% [markdown]
# ## 6. Which gather
# Two ranks have half of the tokens each. Before the product with qkv each rank gathers all tokens, by the op
# below, and computes with its own heads; then comes a reduce-scatter. All gradients are those of one
# machine. Edit: take differentiable.join_in instead, with the same arguments. Its forward is the same. What
# is wrong then?
#
# - a: nothing: both gather, so both have the same gradient
# - b: the gradient of the tokens has only the part that came through the rank's own heads
# - c: the gradient of the tokens is twice too large, since both ranks count it

# %%
PREDICTION_6 = ""


def gathered(x, comm):
    """All tokens, of the shape (B, S, width); x has the tokens of this rank."""
    return differentiable.all_gather(x, comm=comm, axis=1)


# %% [markdown]
# ## 7. A ring without a mask
# Four ranks share 64 tokens on a ring. With the causal mask, attention lasts 904 pairs in plain order, and
# 520 in zig-zag order. Edit: no mask; each query sees all keys, also the later ones. How long does it last?
#
# - a: longer in plain order than in zig-zag order, by the same quotient of 1.74
# - b: as long in both orders
# - c: longer in zig-zag order: its ranks have two blocks each

# %%
PREDICTION_7 = ""
CAUSAL = True

# %% [markdown]
# ## 8. More ranks than heads
# A row of 8 tokens with 4 heads is split by all-to-alls. On four ranks each has one head, and the result is
# the result of one machine. Edit: take 8 ranks. What happens?
#
# - a: an error: there are not enough heads
# - b: each rank gets half of a head, and the result is right
# - c: four ranks have no head and compute nothing, and the result is right

# %%
PREDICTION_8 = ""
RANKS = 4

# %% [markdown]
# ## 9. Positions in a packed row
# Two documents are packed into one row, and a mask keeps them apart. Their places start again at 0 in each,
# and the row has the loss of the two documents alone. Edit: let the places "run on" through the row. Which
# predictions change?
#
# - a: none: attention does not see order, and the mask keeps the documents apart
# - b: the predictions in both documents
# - c: the predictions in the second document alone

# %%
PREDICTION_9 = ""
PLACES = "start again"


if __name__ == "__main__":
    print("the token that changes:", TOKEN_THAT_CHANGES)
