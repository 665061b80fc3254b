"""Questions on lesson 06: predict, change, prove.

Write a letter into each prediction before you change anything. Then make the edit that the question asks for,
and run minigrad lesson 06 --check.
"""

import numpy as np

# %% [markdown]
# ## 1. The weight of a rank
# Three ranks share a batch, and each starts backward with the weight below. Edit: every rank gets the same
# weight, 1 / ranks. One batch has 9 samples, another 7. Which gradient is wrong then?
#
# - a: that of 9 samples
# - b: that of 7 samples
# - c: both
# - d: neither, since the weights still add up to 1

# %%
PREDICTION_1 = ""


def weight(mine, samples, ranks):
    """The weight of a rank that has ``mine`` of the ``samples``."""
    return mine / samples


# %% [markdown]
# ## 2. The size of a bucket
# Backward announces the gradients of eight layers, one every millisecond. A bucket of gradients is sent when
# it is full, one bucket after the other; a message takes 1 ms, and 0.5 ms for each layer in it. With all
# eight in one bucket the step ends 8 + 1 + 4 = 13 ms after backward began. Edit: two layers in a bucket. When
# does it end?
#
# - a: at 10 ms: only the last bucket is left when backward ends
# - b: at 8 ms: everything is hidden
# - c: at 16 ms: four messages cost more than one

# %%
PREDICTION_2 = ""
LAYERS_IN_A_BUCKET = 8


# %% [markdown]
# ## 3. What a rank must hold
# A model has P float32 parameters; SGD with momentum holds one more array of that size. In stage 1 of ZeRO a
# rank holds the weights and the gradients, and its part of the momentum. Edit: write the formula of stage 3.
# How many times less does a rank hold on 4 ranks in stage 3, against plain data parallelism (12 P bytes)?
#
# - a: 4 times
# - b: 3 times
# - c: 1.5 times

# %%
PREDICTION_3 = ""


def bytes_on_a_rank(parameters, ranks):
    """Stage 1: 4 bytes for each weight and each gradient, 4 for each momentum of this rank's part."""
    return 8 * parameters + 4 * parameters / ranks


if __name__ == "__main__":
    shares = np.array([3, 2, 2])
    print("weights of 7 samples on 3 ranks:", [weight(n, 7, 3) for n in shares])
    print("bytes of a rank of 4, a million parameters:", f"{bytes_on_a_rank(1_000_000, 4):,.0f}")
