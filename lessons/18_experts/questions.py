"""Questions on lesson 18: predict, change, prove. There is one for each part.

Write a letter into each prediction before you change anything. Then make the edit that the question asks for,
and run minigrad lesson 18 --check.
"""

# %% [markdown]
# ## 1. A gate without a choice
# A mixture has the number of experts below. With three experts the largest gradient of the gate is about 0.8.
# Edit: let there be 1 expert. What is the largest gradient of the gate then?
#
# - a: about 0.8 again: the result is still multiplied by the gate
# - b: 0, exactly
# - c: about 2.4: all tokens go to one expert, and their gradients add up

# %%
PREDICTION_1 = ""
NUMBER_OF_EXPERTS = 3

# %% [markdown]
# ## 2. Who is dropped
# Four tokens, two experts, one choice, capacity factor 1: each expert has two places. All tokens choose
# expert 0, and the numbers below are their gates for it. Tokens 2 and 3 are dropped. Edit: let the
# gates be (0.6, 0.7, 0.8, 0.9). Who is dropped then?
#
# - a: tokens 0 and 1, since their gates are the smallest
# - b: tokens 2 and 3, although their gates are the largest
# - c: no token: those without a place go to expert 1

# %%
PREDICTION_2 = ""
GATES_FOR_EXPERT_0 = (0.9, 0.8, 0.7, 0.6)

# %% [markdown]
# ## 3. All by a small margin
# Four experts, alpha = 0.01. All tokens choose expert 0. The product of a token and the row of expert 0 is
# the number below, its products with the other rows are 0. With 1000 the gate of expert 0 is 1, and the
# penalty is 0.04. Edit: let the number be 0.001. Expert 0 still has all tokens. What is the penalty, rounded?
#
# - a: 0.04: it counts tokens, and they have not moved
# - b: 0.01, as if the experts were balanced
# - c: 0.001

# %%
PREDICTION_3 = ""
PRODUCT = 1000.0

# %% [markdown]
# ## 4. A rank without tokens
# Two ranks have two experts each. The batch has the number of samples below, of 8 tokens; with 2 samples each
# rank has one. Edit: let there be 1 sample. Rank 0 has none then. What does it send in the mixture, forward
# and back?
#
# - a: nothing: it has no tokens
# - b: counts of 0, and no rows
# - c: counts of 0, and rows: results and gradients of its own experts

# %%
PREDICTION_4 = ""
SAMPLES = 2

# %% [markdown]
# ## 5. Places for each rank
# Four ranks train a mixture of 6 experts in which all samples of a rank share their places
# (capacity_per="rank"). With the capacity factor below tokens are dropped, and the gradients differ from the
# gradients of one machine. Edit: let the factor be 6.0. Then every expert has places for all tokens. What
# about the gradients?
#
# - a: they equal the gradients of one machine, up to rounding: no token is dropped in either
# - b: they still differ: each rank chooses by itself
# - c: they still differ, by the penalty: its shares and mean gates belong to a rank, not to a sample

# %%
PREDICTION_5 = ""
CAPACITY = 1.0

# %% [markdown]
# ## 6. A second choice
# A layer of 8 experts, on four ranks, with places for all tokens. Each token chooses as many experts as the
# number below. Edit: let it be 2. What becomes twice as large?
#
# - a: the operations for a token, nearly; parameters and bytes between the ranks stay
# - b: the operations, nearly, and the bytes; the parameters stay
# - c: all three

# %%
PREDICTION_6 = ""
CHOICES = 1

# %% [markdown]
# ## 7. A slow network
# A rank computes a forward, six halves of blocks of 2 s, and a backward, six halves of 4 s. Each half has an
# all-to-all of the number of seconds below. At 2 s all-to-alls cost nothing: both are done after 36 s. Edit:
# let an all-to-all take 8 s. When are both done, if the rank takes them in turns?
#
# - a: after 132 s, the sum of everything
# - b: after 96 s, the time of all 12 all-to-alls
# - c: after 60 s

# %%
PREDICTION_7 = ""
SECONDS_OF_AN_ALL_TO_ALL = 2


if __name__ == "__main__":
    print("gates for expert 0:", GATES_FOR_EXPERT_0)
