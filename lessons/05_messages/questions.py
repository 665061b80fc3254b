"""Questions on lesson 05: predict, change, prove.

Write a letter into each prediction before you change anything. Then make the edit that the question asks for,
and run minigrad lesson 05 --check.
"""

# %% [markdown]
# ## 1. Twice the ranks
# The ring all-reduce of 1 MB on 8 ranks takes 14 ms, on links of 1 Gbit/s and a latency of a microsecond.
# Edit: 16 ranks, each with 1 MB. How long does it take?
#
# - a: 30 ms: there are 30 rounds instead of 14
# - b: 7 ms: the chunks are half as large
# - c: 15 ms

# %%
PREDICTION_1 = ""
RANKS = 8


# %% [markdown]
# ## 2. Around the ring
# Each rank sends an array to its right neighbor and receives one from its left neighbor, and each send waits
# for its receiver. All ranks send first: this is a deadlock. Edit: rank 0, and only rank 0, receives first.
# For which numbers of ranks (at least 2) does every rank get its array?
#
# - a: for all numbers
# - b: for 2 only: with more ranks the others still wait for each other
# - c: for even numbers only

# %%
PREDICTION_2 = ""


def receives_first(rank, ranks):
    """Whether ``rank`` receives before it sends."""
    return False


# %% [markdown]
# ## 3. A rank's own gradient first
# Each rank has the float32 gradients of all ranks, and adds them up itself, in the order 0, 1, 2, ... Then
# all ranks have the same bits. Edit: rank k adds up k, k + 1, ... and then 0, 1, ..., k - 1, so that it
# can begin with its own gradient. What do the ranks have?
#
# - a: the same bits, since addition commutes
# - b: sums that differ in their last bits
# - c: the same bits, unless numbers of very different size are added

# %%
PREDICTION_3 = ""


def order(rank, ranks):
    """The order in which ``rank`` adds up the gradients of the ranks."""
    return list(range(ranks))


if __name__ == "__main__":
    for rank in range(4):
        print(f"rank {rank} of 4: receives first: {receives_first(rank, 4)}; adds up {order(rank, 4)}")
