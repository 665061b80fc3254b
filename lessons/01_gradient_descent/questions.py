"""Questions on lesson 01: predict, change, prove.

Write a letter into each prediction before you change anything. Then make the edit that the question asks for,
and run minigrad lesson 01 --check.
"""

import numpy as np

# %% [markdown]
# ## 1. Pixels from 0 to 255
# A linear model of pixels between 0 and 1 learns at rates up to 0.3; at larger ones its loss grows. Now the
# pixels are numbers between 0 and 255. Edit: the formula of the largest rate for inputs that are ``factor``
# times as large. What is the largest rate now?
#
# - a: 0.3: the weights become 255 times smaller, and the loss is the same
# - b: 255 times smaller than 0.3
# - c: 65,025 times smaller than 0.3

# %%
PREDICTION_1 = ""


def largest_rate(rate, factor):
    """The largest rate after the inputs are multiplied by ``factor``; before, it was ``rate``."""
    return rate


# %% [markdown]
# ## 2. Longer steps
# The second derivatives of a loss along its two weights are 1 and 4, so rates below 2 / 4 converge. At the
# rate 1.6 / 4 both weights are within 0.01 of the best ones after 10 steps. Edit: the rate 1.9 / 4. How many
# steps are needed?
#
# - a: more than 40
# - b: fewer than 10, since each step is longer
# - c: it never gets there

# %%
PREDICTION_2 = ""
RATE = 1.6 / 4


# %% [markdown]
# ## 3. A larger mini-batch
# A data set has 8 samples. A mini-batch of 2 different ones gives a gradient with some squared error, on
# average over all the mini-batches that can be drawn. Edit: mini-batches of 4. What is the squared error now?
#
# - a: 0.71 times as large
# - b: half as large
# - c: a third as large

# %%
PREDICTION_3 = ""
BATCH_SIZE = 2


# %% [markdown]
# ## 4. An epoch
# Edit: write the function below. Ten samples in mini-batches of 4 are batches of 4, 4 and 2. There is no
# momentum, and the weights move little. Which samples move the weights most?
#
# - a: all samples count alike, since each is seen once
# - b: the last two, each twice as much as another
# - c: the samples of the first batch, since the loss is largest there

# %%
PREDICTION_4 = ""


def epoch(x, y, w, rate, momentum, size):
    """The weights (d,) after one epoch of SGD with momentum that starts from the weights ``w`` (d,).

    The loss of a mini-batch is the mean of (x w - y)² over its samples; ``x`` is (n, d) and ``y`` (n,). The
    mini-batches are consecutive rows, ``size`` of them, the last one fewer where ``size`` does not divide n.
    The velocity starts at 0. Do not change ``w`` itself.
    """
    return w


if __name__ == "__main__":
    print("largest rate of pixels up to 255:", largest_rate(0.3, 255))
    print("an epoch:", epoch(np.eye(10), np.ones(10), np.zeros(10), 0.1, 0.0, 4))
