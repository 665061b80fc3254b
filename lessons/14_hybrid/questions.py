"""Questions on lesson 14: predict, change, prove.

Write a letter into each prediction before you change anything. Then make the edit that the question asks for,
and run minigrad lesson 14 --check.
"""

# %% [markdown]
# ## 1. Where both ways send equally much
# A linear layer inside a network takes 4,096 numbers to 4,096. Each of 16 ranks sends less if the layer is
# split, up to a batch of 2,730 samples; with more samples it sends less if the batch is split. Edit: a layer
# of 1,024 numbers to 1,024, with a sixteenth of the weights. Up to which batch does a rank send less if the
# layer is split?
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
# - a: 4 x 1: all messages grow in the same way
# - b: 1 x 4: there are nearly 16 times as many weights, and sending these costs most
# - c: 2 x 2

# %%
PREDICTION_2 = ""
WIDTH_OF_THE_NETWORK = 16

# %% [markdown]
# ## 3. A slower network
# AlexNet, 512 ranks, 2,048 samples: by the formula of part 2, on a network of 2 us a message and 6 GB/s,
# messages take least time if Pr = 4 ranks share the model, and 512 / 4 the batch. Edit: a tenth of the
# bandwidth. Which Pr is cheapest then?
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
# - a: more: three copies of each matrix, and three sums, are added
# - b: fewer: broadcasts reach 7 ranks instead of 15, which saves more than copies and sums cost
# - c: as many: copies and sums cost exactly as much as the shorter broadcasts save

# %%
PREDICTION_5 = ""
LAYERS = 1

# %% [markdown]
# ## 6. A wider layer and its batch
# Eight ranks share the batch. Each computes 4 operations for every weight and token in backward, and sums the
# gradients of all weights with the others, at 2 bytes a number. With 312 TFLOP/s and 300 GB/s, a layer of
# 1,024 x 1,024 weights and no latency, computing takes longer than this sum from 910 tokens a rank on. Edit:
# a layer of 4,096 x 4,096. From how many tokens on now?
#
# - a: 14,560: the gradients are 16 times as large
# - b: 57: for each token there is 16 times as much to compute
# - c: 910, as before

# %%
PREDICTION_6 = ""
WIDTH_OF_THE_LAYER = 1024

# %% [markdown]
# ## 7. More tokens for model ranks
# Eight ranks share 4,096 neurons between two linear layers, on the same machine without latency. With 1,024
# tokens the sum over the ranks takes longer than computing. Edit: 16 times as many tokens. Which takes longer
# now?
#
# - a: the sum, by the same factor as before
# - b: computing: a large enough batch hides every message
# - c: the sum, by a factor that is 16 times as large

# %%
PREDICTION_7 = ""
TOKENS_OF_MODEL_RANKS = 1024

# %% [markdown]
# ## 8. The bound is yours
# A rank computes `flops` operations a second. A message of n bytes takes latency + n / bandwidth seconds. In
# backward it computes 4 operations for each weight and token. A ring all-reduce of all gradients takes
# 2 (ranks - 1) messages of a `ranks`-th of them, with `itemsize` bytes a number.
#
# Prediction: the rank needs 910 tokens, without latency, where 8 ranks share the batch. How many does it need
# where 64 ranks of the same kind share it?
#
# - a: 7,280: there are 8 times as many ranks
# - b: 1,024, a little more
# - c: 114: each rank sums an eighth of what it summed before
#
# Edit: write the function. It returns a number that need not be whole.

# %%
PREDICTION_8 = ""


def least_tokens(flops, latency, bandwidth, ranks, weights, itemsize):
    """The tokens of a rank for which its backward takes as long as the all-reduce of its gradients."""
    return 0.0 * weights


if __name__ == "__main__":
    print("tokens of 64 ranks:", least_tokens(312e12, 0.0, 300e9, 64, 4096**2, 2))
    print("two layers on 2 x 2, 64 samples:", numbers_sent([(4160, 64), (4160, 64)], 2, 2, 64))
