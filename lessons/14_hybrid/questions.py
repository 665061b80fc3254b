"""Questions on lesson 14: predict, change, prove.

Write a letter into each prediction before you change anything. Then make the edit that the question asks for,
and run minigrad lesson 14 --check.
"""

# %% [markdown]
# ## 1. Where the two ways are level
# A linear layer inside a network takes 4,096 numbers to 4,096. On each of 16 ranks less is sent if the
# layer is split, up to a batch of 2,730 samples; with more samples less is sent if the batch is split.
# Edit: a layer of 1,024 numbers to 1,024, with a sixteenth of the weights. Up to which batch is less sent
# if the layer is split?
#
# - a: 170 samples
# - b: 682 samples
# - c: 2,730 samples, as before

# %%
PREDICTION_1 = ""
WIDTH = 4096

# %% [markdown]
# ## 2. Four times as wide
# A network of two linear layers, each as wide as below, is trained with batches of 64 samples on four
# ranks, as a grid of data x model: 4 x 1, 2 x 2 or 1 x 4. At the width 16 the grid 4 x 1 sends least. Edit:
# the width 64. Which grid sends least then?
#
# - a: 4 x 1: all that is sent grows in the same way
# - b: 1 x 4: there are nearly 16 times as many weights, and sending these costs most
# - c: 2 x 2

# %%
PREDICTION_2 = ""
WIDTH_OF_THE_NETWORK = 16

# %% [markdown]
# ## 3. A slower network
# AlexNet, 512 ranks, 2,048 samples: by formula, on a network of 2 us a message and 6 GB/s, the step spends
# least on messages if Pr = 4 ranks share the model, and 512 / 4 the batch. Edit: a tenth of the bandwidth.
# Which Pr is cheapest then?
#
# - a: a larger one: weights are the largest messages, and a larger Pr makes them smaller
# - b: 4, as before
# - c: a smaller one: activations are sent in every layer, and a smaller Pr avoids them

# %%
PREDICTION_3 = ""
BYTES_A_SECOND = 6e9

# %% [markdown]
# ## 4. The formula is yours
# A grid of data x model ranks trains linear layers, given as (weights, outputs) pairs; all are split by
# neurons over the model axis, and each gathers its outputs. A rank has 1 / model of the weights and sees 1
# / data of the batch. Over r ranks a ring all-gather of n numbers sends n (r - 1) / r from each rank, an
# all-reduce twice as many. Forward, each layer's outputs are gathered; backward, the gradient of each
# layer's inputs is all-reduced, but not of the first layer's, whose inputs are data; then the gradients of
# the weights are all-reduced over the data axis.
#
# Prediction: ten layers of 100 inputs and 100 neurons, 10,000 samples, a grid of 2 x 2. Which sends most?
#
# - a: the all-gather of the outputs
# - b: the all-reduce of the inputs' gradients
# - c: the all-reduce of the weights' gradients
#
# Edit: write the function, in 5 to 15 lines.

# %%
PREDICTION_4 = ""


def numbers_sent(layers, data, model, batch):
    """The numbers that a rank sends in one step, for ``layers`` of (weights, outputs)."""
    return 0.0


# %% [markdown]
# ## 5. Copies for fewer bytes
# 256 ranks multiply two matrices of 16 x 16 numbers, in blocks. As one layer of 16 x 16 ranks, by SUMMA, each
# of them sends 30 numbers on average. Edit: 4 layers of 8 x 8 ranks, each with a copy of both matrices. How
# many numbers does a rank send then?
#
# - a: more: three copies of each matrix, and three sums, come on top
# - b: fewer: broadcasts reach 7 ranks instead of 15, which saves more than copies and sums cost
# - c: as many: what copies and sums cost is what shorter broadcasts save

# %%
PREDICTION_5 = ""
LAYERS = 1


if __name__ == "__main__":
    print("two layers on 2 x 2, 64 samples:", numbers_sent([(4160, 64), (4160, 64)], 2, 2, 64))
