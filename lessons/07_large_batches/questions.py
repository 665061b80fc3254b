"""Questions on lesson 07: predict, change, prove.

Write a letter into each prediction before you change anything. Then make the edit that the question asks for,
and run minigrad lesson 07 --check.
"""

import numpy as np

# %% [markdown]
# ## 1. The rate rises
# ``HeavyBall`` without momentum correction, v <- 0.9 v + rate * gradient, takes 40 steps at the rate 0.1 of a
# weight whose gradient is always 1. Then the rate falls to 0.01, and the next step is nine times as long as
# the step of SGD. Edit: let the rate rise to 1 instead. How long is the next step, compared with SGD's?
#
# - a: nine times as long
# - b: as long: the newest gradient counts most
# - c: a fifth as long

# %%
PREDICTION_1 = ""
RATES = (0.1, 0.01)


# %% [markdown]
# ## 2. Weight decay of a large batch
# The batch and the rate become k times as large; the loss stays a mean, and the gradient includes
# weight_decay * w. Edit: return the weight decay with which an epoch shrinks the weights as much as before.
# How does it change?
#
# - a: it does not change
# - b: it becomes k times as large, like the rate
# - c: it becomes k times smaller, since the rate is larger

# %%
PREDICTION_2 = ""


def scaled_decay(decay, k):
    """The weight decay for ``k`` times the batch and the rate."""
    return k * decay


# %% [markdown]
# ## 3. Where the linear rule ends
# All samples have the loss w² / 2, and a batch of one sample learns at the rate 0.1. Eight samples at the
# rate 0.8: one step goes from 1 to 0.2, while eight small steps go to 0.43. Edit: batches of 16 samples.
# What happens?
#
# - a: w comes close to 0 after fewer samples than with batches of one
# - b: w jumps over 0 in each step, and still comes closer, after more samples than with batches of one
# - c: w jumps over 0 in each step, and farther and farther away

# %%
PREDICTION_3 = ""
SAMPLES_IN_A_BATCH = 8


# %% [markdown]
# ## 4. LARS
# Edit: write the function below. The loss is multiplied by 1,000, as in training with float16. There is no
# weight decay. What happens to the first step of a matrix of weights with LARS?
#
# - a: it is 1,000 times as long, as with SGD
# - b: it is 1,000 times shorter: the rate is divided by the length of the gradient
# - c: it is as long as before

# %%
PREDICTION_4 = ""


def lars(w, g, v, lr, momentum, decay, trust):
    """The weights and the velocity after a step of LARS, from those before it; two new arrays.

    v <- momentum v + rate (g + decay w), then w <- w - v. For an array of two or more axes the rate is
    lr trust |w| / (|g| + decay |w|), with the norms of the whole arrays; where |w| or |g| is 0, and for other
    arrays, it is lr.
    """
    return w, v


if __name__ == "__main__":
    print("weight decay for 8 times the batch:", scaled_decay(0.01, 8))
    w, g = np.ones((2, 2)), np.full((2, 2), 3.0)
    print("a step of LARS:", lars(w, g, np.zeros((2, 2)), 0.1, 0.9, 0.0, 1.0)[0])
