"""Questions on lesson 19: predict, change, prove. There is one for each part.

Write a letter into each prediction before you change anything. Then make the edit that the question asks for,
and run minigrad lesson 19 --check.
"""

# %% [markdown]
# ## 1. A number in the middle
# 2049 is no float16 number: it is rounded to 2048. Edit: take 4098. What is it rounded to?
#
# - a: 4098, since it is even
# - b: 4100, since a number in the middle is rounded up
# - c: 4096

# %%
PREDICTION_1 = ""
NUMBER = 2049

# %% [markdown]
# ## 2. A larger batch
# Take the net of the lesson, the seed 1 and a batch of 16 rows. In float16 less than one of a hundred
# gradients of activations is lost. Edit: take 64 rows. The loss is still their mean, and the seed is still 1.
# How many of the gradients are lost?
#
# - a: as many as before, as a mean does not depend on the number of rows
# - b: about three times as many, as with the seed 1/4
# - c: fewer, since the rounding errors of more rows cancel

# %%
PREDICTION_2 = ""
ROWS = 16

# %% [markdown]
# ## 3. A factor, before or after
# In a net of float16, with the seed 2^-12, the gradients of the parameters are wrong by 100 % (median). We
# multiply by 4,096. Below, the factor multiplies the "gradients" after backward, as a larger learning rate
# does. Edit: let it multiply the "loss". How wrong are the gradients then?
#
# - a: by 100 %, again: backward is linear, so it does not matter where the factor is
# - b: by about 50 %: half of the gradients are lost before
# - c: by less than 0.1 %, as with the seed 1

# %%
PREDICTION_3 = ""
FACTOR_OF = "gradients"

# %% [markdown]
# ## 4. Up and down
# A float16 weight of 1 without a master weight. The number below is added a hundred times. With -0.0004 the
# weight becomes about 0.951. Edit: add 0.0004. What does the weight become?
#
# - a: about 1.049
# - b: it stays 1, exactly
# - c: 1.04, by the sum of all updates

# %%
PREDICTION_4 = ""
UPDATE = -0.0004

# %% [markdown]
# ## 5. Momentum instead of Adam
# With AdamW a parameter has 16 bytes in all, in float32 and in float16 with master weights. Edit: take "SGD",
# with momentum. How many bytes are there in float32, and how many in float16?
#
# - a: 12 and 12
# - b: 12 and 10
# - c: 8 and 12

# %%
PREDICTION_5 = ""
OPTIMIZER = "AdamW"

# %% [markdown]
# ## 6. A hasty scale
# All gradients of all steps have the same size. The scale is doubled after the number of good steps below.
# With 8, one of nine steps is left out in the long run. Edit: let it be 1. How many are left out?
#
# - a: every second one
# - b: none: the scale finds the right value and stays there
# - c: all: the scale grows without an end

# %%
PREDICTION_6 = ""
GROWTH_INTERVAL = 8

# %% [markdown]
# ## 7. The order of a sum
# Four ranks add up arrays of four numbers by a ring. Rank 0 has 2048 in all places, the other ranks have 1.
# In float32 the sum is 2051 in all places. Edit: take "float16", where the sum 2051 would be rounded to 2052.
# What are the four sums?
#
# - a: 2052 in all places
# - b: 2048 in all places: 2048 + 1 is 2048
# - c: not the same number in all places

# %%
PREDICTION_7 = ""
DTYPE = "float32"

# %% [markdown]
# ## 8. A large number
# The number 100,000 is infinite in float16. Edit: take "bfloat16". What does it become?
#
# - a: 100,000
# - b: 99,840
# - c: infinite

# %%
PREDICTION_8 = ""
FORMAT = "float16"


if __name__ == "__main__":
    print("the number:", NUMBER)
