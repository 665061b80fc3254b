"""Questions on lesson 12: predict, change, prove.

Write a letter into each prediction before you change anything. Then make the edit that the question asks for,
and run minigrad lesson 12 --check.
"""

# %% [markdown]
# ## 1. The halo of a strided convolution
# Three ranks share the 36 rows of an image. For a 5 x 5 convolution with padding 2 and the stride below, the
# rank in the middle receives 2 rows from the rank above it and 2 from the rank below it. The rank that has
# the input row stride * o computes the output row o. Edit: the stride 2. How many rows does the rank in the
# middle receive?
#
# - a: 2 from above and 2 from below: half of the kernel, whatever the stride is
# - b: 2 from above and 1 from below
# - c: 1 from above and 1 from below: it computes half as many outputs

# %%
PREDICTION_1 = ""
STRIDE = 1

# %% [markdown]
# ## 2. A taller image
# Four ranks share images of the height below, 32 pixels wide, and compute a 3 x 3 convolution. By rows, a
# rank in the middle sends 1,024 numbers in forward. Edit: images of twice the height. How many numbers does
# it send then?
#
# - a: 2,048: it has twice as many rows
# - b: 512: a slice is thicker, and has less border
# - c: 1,024

# %%
PREDICTION_2 = ""
HEIGHT = 32

# %% [markdown]
# ## 3. Tiles
# Sixteen ranks share images of 64 x 64 for a 3 x 3 convolution, as slices of 4 rows: a rank in the middle
# sends 2,048 numbers forward, in 2 messages. Edit: "tiles 4x4", of 16 x 16 pixels each. What does a rank in
# the middle send?
#
# - a: about half as many numbers, in 8 messages: the corners belong to its diagonal neighbors
# - b: about half as many numbers, in 4 messages
# - c: about a quarter of the numbers, in 4 messages: each side is a quarter as long

# %%
PREDICTION_3 = ""
SPLIT = "rows"


if __name__ == "__main__":
    print(f"stride {STRIDE}, height {HEIGHT}, split by {SPLIT}")
