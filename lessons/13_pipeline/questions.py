"""Questions on lesson 13: predict, change, prove.

Write a letter into each prediction before you change anything. Then make the edit that the question asks for,
and run minigrad lesson 13 --check.
"""

# %% [markdown]
# ## 1. What 1F1B saves
# A rank takes 1 s for a micro-batch's forward and 2 s for its backward, and messages are free. On four ranks
# GPipe needs 33 s for a step of eight micro-batches, and every rank holds the activations of all eight
# micro-batches. Edit: take the schedule "1f1b", which goes back as soon as it can. What happens to the time,
# and to the number of micro-batches that a rank holds?
#
# - a: less than 33 s, since backward begins sooner; a rank holds 4 micro-batches at most
# - b: 33 s again; rank 0 holds 4 micro-batches at most, the last rank 1
# - c: 33 s again; every rank holds 1 micro-batch, which goes back before the next one comes

# %%
PREDICTION_1 = ""
SCHEDULE = "gpipe"

# %% [markdown]
# ## 2. Chunks on a slow link
# The same four ranks and eight micro-batches by 1F1B, but a rank may hold its layers as several chunks. While
# messages are free a step takes 33 s with one chunk, 28.5 s with two and 26.25 s with four. Edit: each
# message between two ranks takes half a second. Which order holds then, the fastest first? (All seconds are
# planned ones; in the plan a rank may receive several messages at once. The run of the lesson receives one
# at a time, and takes a little longer with four chunks.)
#
# - a: two chunks, one, four: some more messages pay, many do not
# - b: four chunks, two, one: every chunk more still shortens the bubble
# - c: one chunk, two, four: every message more costs time

# %%
PREDICTION_2 = ""
SECONDS_OF_A_MESSAGE = 0

# %% [markdown]
# ## 3. One forward less
# In 1F1B a rank does some forwards ahead; then it does one forward and one backward in turn. The function
# below gives the number for 1F1B: 3, 2, 1 and 0 on four ranks. Edit: every rank does one forward less ahead,
# but never less than 0 (max(0, ...)). Messages are free, and a step of eight micro-batches took 33 s. What
# happens?
#
# - a: the ranks wait for one another and never end
# - b: 36 s: the pipeline is late by one forward and one backward
# - c: 54 s: some ranks never work at the same time
# - d: 33 s, with less memory: the last forward ahead was not needed yet

# %%
PREDICTION_3 = ""


def forwards_ahead(rank, ranks):
    """The forwards that a rank does before its first pair of a forward and a backward."""
    return ranks - rank - 1


if __name__ == "__main__":
    print("forwards ahead on four ranks:", [forwards_ahead(rank, 4) for rank in range(4)])
