"""Questions on lesson 10: predict, change, prove.

Write a letter into each prediction before you change anything. Then make the edit that the question asks for,
and run minigrad lesson 10 --check.
"""

# %% [markdown]
# ## 1. A threshold above every gradient
# The gradient of a weight is 0.25 in each of 100 steps, 25 in all. A rank sends it by the threshold below,
# with error feedback: the part that is not sent is added to the next gradient. With a threshold of 1 all of
# the 25 is sent, in 20 messages. Edit: a threshold of 3, twelve times as large as any gradient. How much is
# sent in the 100 steps?
#
# - a: about a third of 25: a threshold three times as large lets a third through
# - b: nothing: no gradient is above the threshold
# - c: nearly all of the 25, in fewer messages

# %%
PREDICTION_1 = ""
THRESHOLD = 1.0

# %% [markdown]
# ## 2. A quarter of the entries
# Eight ranks share a gradient of 4,096 float32. A dense ring all-reduce sends 28,672 bytes from each rank.
# Top-k sends the fraction below of the entries, each as a value and an index of 4 bytes; with 1 / 64 these
# are 3,584 bytes, an eighth. Edit: a density of 1 / 4. How much does a rank send, against the dense ring?
#
# - a: twice as much
# - b: half as much: a quarter of the entries, of twice as many bytes
# - c: as much: half of the entries would cost as much as their indices

# %%
PREDICTION_2 = ""
DENSITY = 1 / 64

# %% [markdown]
# ## 3. Where signs lead
# Rank 0 has the sample (1.5, -0.5), rank 1 has (-0.5, 1.5), both with the target 0; so the best weights are
# (0, 0). Ranks send the sign of each entry of their gradient, times a scale, and no error feedback. From
# the weights below 120 steps end at (1, 1), far from the best. Edit: let the second weight start at -1.8.
# Where do the steps end?
#
# - a: at (1, 1) again, where the messages of the two ranks cancel
# - b: at (0, 0)
# - c: at (1.8, -1.8): the messages cancel at once
# - d: at (1, -1), the nearest point with two equal sizes

# %%
PREDICTION_3 = ""
START = (1.8, 0.2)


if __name__ == "__main__":
    print(f"threshold {THRESHOLD:g}, density {DENSITY:g}, start {START}")
