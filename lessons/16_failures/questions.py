"""Questions on lesson 16: predict, change, prove.

Write a letter into each prediction before you change anything. Then make the edit that the question asks for,
and run minigrad lesson 16 --check.
"""

# %% [markdown]
# ## 1. One sync less
# A program saves a generation in four operations: it writes a new file, syncs it, renames it over the old
# one, and syncs the folder. No crash loses both generations. Edit: leave out the first sync, of the file; the
# second stays. The save returns, and then the power fails. What does a reader find?
#
# - a: always the new generation: the sync of the folder makes everything in it safe
# - b: the new one or the old one
# - c: the new one or nothing: the name is safe, and the bytes are not

# %%
PREDICTION_1 = ""
SAVE = ["write new", "sync new", "rename new to old", "sync folder"]

# %% [markdown]
# ## 2. More hosts
# Three hosts, each with one rank, save pieces of 1,000,000 bytes in memory, by parity. Each rank holds half
# a piece for the others, and sends one piece. Edit: 11 hosts. What changes?
#
# - a: it holds a tenth of a piece, and sends one piece as before
# - b: it holds a tenth of a piece, and sends a tenth
# - c: it holds a tenth of a piece, and sends ten pieces, one to each other host

# %%
PREDICTION_2 = ""
HOSTS = 3

# %% [markdown]
# ## 3. Which losses are survived?
# With partner copies and one rank on each host, rank r holds a copy of the piece of rank r - 1, and rank 0
# holds a copy of the last rank's piece. Any one host may be lost, and some pairs of hosts, too.
#
# Prediction: of the 28 pairs of 8 hosts, how many lose a piece?
#
# - a: all 28: copies are for one host
# - b: 8
# - c: 7
#
# Edit: write the function, in one line or more. As it is here, it says that any one lost rank is survived,
# and that two never are.

# %%
PREDICTION_3 = ""


def is_restored(lost, ranks):
    """Whether all pieces of ``ranks`` ranks can be restored when the set ``lost`` of ranks is lost."""
    return len(lost) < 2


if __name__ == "__main__":
    pairs = [{a, b} for a in range(8) for b in range(a)]
    print(f"{sum(not is_restored(pair, 8) for pair in pairs)} of {len(pairs)} pairs lose a piece")
