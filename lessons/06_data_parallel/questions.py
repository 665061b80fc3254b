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
# - a: the gradient of 9 samples
# - b: the gradient of 7 samples
# - c: both
# - d: neither, because the weights still add up to 1

# %%
PREDICTION_1 = ""


def weight(mine, samples, ranks):
    """The weight of a rank that has ``mine`` of the ``samples``."""
    return mine / samples


# %% [markdown]
# ## 2. The size of a bucket
# Backward computes the gradients of eight layers, one every millisecond. A bucket of gradients is sent when
# it is full, one bucket after the other; a message takes 1 ms, and 0.5 ms for each layer in it. With all
# eight in one bucket the step ends 8 + 1 + 4 = 13 ms after backward began. Edit: two layers in a bucket. When
# does the step end?
#
# - a: at 10 ms: only the last bucket is left when backward ends
# - b: at 8 ms: everything is hidden
# - c: at 16 ms: four messages cost more than one

# %%
PREDICTION_2 = ""
LAYERS_IN_A_BUCKET = 8


# %% [markdown]
# ## 3. What a rank must hold
# A model has P float32 parameters; SGD with momentum holds one more array of that size, the velocity. In
# stage 1 of ZeRO a rank holds all weights and gradients, and its part of the velocity. Edit: write the
# formula of stage 3. Plain data parallelism holds 12 P bytes on each rank. What share of them does each of 4
# ranks hold in stage 3?
#
# - a: a quarter
# - b: a third
# - c: two thirds

# %%
PREDICTION_3 = ""


def bytes_on_a_rank(parameters, ranks):
    """Stage 1: 4 bytes for each weight and each gradient, 4 for each velocity in this rank's part."""
    return 8 * parameters + 4 * parameters / ranks


# %% [markdown]
# ## 4. Five percent serial work
# On one rank a tenth of a step's time is serial work. So no number of ranks is more than 10 times as fast,
# and 20 ranks are 6.9 times as fast. Edit: 5 % serial work, which allows 20 times at most. How many times as
# fast as one rank are 20 ranks now?
#
# - a: 20 times, which is the most that is possible
# - b: 19 times: 95 % of the work is shared by 20 ranks
# - c: 10.3 times

# %%
PREDICTION_4 = ""
SERIAL_SHARE = 0.10


# %% [markdown]
# ## 5. The batch grows with the ranks
# A sample takes 1 ms, and in each step every rank needs 4 ms more for any share. One rank takes 68 ms
# for a batch of 64 samples, and 16 ranks are 8.5 times as fast: they take 8 ms. Edit: a batch of 1,024, 64
# samples for each of the 16 ranks. How many times as fast as one rank, which takes 1,028 ms for it, are they?
#
# - a: 8.5 times: the serial part is still 4 ms, and Amdahl's law holds
# - b: 15.1 times: the 4 ms are now a small part of a step of 68 ms
# - c: 16 times: each rank has as much work as one rank had

# %%
PREDICTION_5 = ""
SAMPLES_IN_ALL = 64


# %% [markdown]
# ## 6. What does not scale?
# A program takes 100 s on one rank, 40 s on 4 ranks and 30 s on 8. Edit: write the function that says which
# share of the time on one rank is serial by Amdahl's law, from the times of one rank and of several. Call it
# for 4 ranks and for 8. What keeps the program from being faster?
#
# - a: serial work, 20 % of the time on one rank
# - b: messages: twice as many ranks take 30 s instead of 20
# - c: serial work, 30 % of the time on one rank: that is what 8 ranks take

# %%
PREDICTION_6 = ""


def serial_share(one, several, ranks):
    """The serial share of a program that takes ``one`` second(s) on a rank, ``several`` on ``ranks``."""
    return several / one


if __name__ == "__main__":
    shares = np.array([3, 2, 2])
    print("weights of 7 samples on 3 ranks:", [weight(n, 7, 3) for n in shares])
    for seconds, ranks in ((40, 4), (30, 8)):
        print(f"a serial share from {ranks} ranks:", serial_share(100, seconds, ranks))
    print("bytes of a rank of 4, a million parameters:", f"{bytes_on_a_rank(1_000_000, 4):,.0f}")
