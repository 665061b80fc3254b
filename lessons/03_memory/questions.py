"""Questions on lesson 03: predict, change, prove.

Write a letter into each prediction before you change anything. Then make the edit that the question asks for,
and run minigrad lesson 03 --check.
"""

from minigrad import nn

# %% [markdown]
# ## 1. Another activation function
# In a network of linear layers with ReLU between them the tape keeps one array of each hidden layer: the
# output of its ReLU. GELU, x times the normal distribution function of x, is used in transformers. Edit: GELU
# instead of ReLU. How many arrays does the tape keep of each hidden layer?
#
# - a: 1: an activation function has no weights, so the tape keeps only the input of the next layer
# - b: 2: the input and the output of the GELU
# - c: 3: also the value of the normal distribution function, which the derivative needs

# %%
PREDICTION_1 = ""
ACTIVATION = nn.ReLU


# %% [markdown]
# ## 2. Which layer is trained
# Four linear layers of the same width, with ReLU between them. If only the last one is trained, the tape
# keeps one array besides the weights, its input; if all are trained, four. Edit: only the first one is
# trained. How many arrays does the tape keep?
#
# - a: 4: as if all were trained
# - b: 2: the batch and the output of the first layer
# - c: 1: the batch

# %%
PREDICTION_2 = ""
TRAINED = (False, False, False, True)


# %% [markdown]
# ## 3. Shorter segments
# 36 layers are recomputed in 6 segments of 6 layers: at most 12 activations exist at the same time, the batch
# included. Edit: 18 segments of 2 layers. How many activations exist at most?
#
# - a: about 4: a segment has only 2 layers
# - b: 20
# - c: 12: the product of the two numbers is the same

# %%
PREDICTION_3 = ""
SEGMENTS = 6


# %% [markdown]
# ## 4. What a tape keeps
# Edit: write the function below. A network has the layers linear, ReLU, linear, ReLU, linear. How many arrays
# does the tape of a training step keep?
#
# - a: 3: the batch, and two outputs
# - b: 5: the inputs of all layers
# - c: 5: three for the linear layers, and two for the ReLUs

# %%
PREDICTION_4 = ""


def numbers_on_tape(layers, widths):
    """How many numbers a tape keeps of one sample, where all linear layers are trained.

    ``layers`` has names, "linear", "relu", "tanh" or "gelu", and begins with "linear". Layer i takes
    ``widths[i]`` numbers, and the last layer returns ``widths[-1]``. The batch counts if the tape keeps it. A
    GELU keeps its input.
    """
    return 0


if __name__ == "__main__":
    print("numbers kept:", numbers_on_tape(["linear", "relu", "linear"], [784, 128, 128, 10]))
