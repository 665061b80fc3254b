"""Questions on lesson 11: predict, change, prove.

Write a letter into each prediction before you change anything. Then make the edit that the question asks for,
and run minigrad lesson 11 --check.
"""

from backends.comm import differentiable

# %% [markdown]
# ## 1. The op in front of the columns
# Three ranks compute y = tanh(x W1) W2: of W1 each rank has some columns, of W2 the rows that belong to
# them. In front of the columns x passes the op below. Edit: leave the op out, so that x itself is returned.
# Which gradients are wrong then, on every rank?
#
# - a: those of W1 and of x
# - b: that of x
# - c: those of W1, W2 and x

# %%
PREDICTION_1 = ""


def front(x, comm):
    """What the columns get."""
    return differentiable.fan_out(x, comm=comm)


# %% [markdown]
# ## 2. Rows first
# Three ranks split two layers, 12 numbers to 24 and back to 12: the first by columns, the second by rows.
# For 6 samples a rank sends 96 numbers forward and 96 backward. Edit: split the first layer by rows and the
# second by columns. The input and the output are whole on every rank, as before. What does a rank send?
#
# - a: as much: one layer is still split along the axis on which the other one is joined
# - b: less: a rank needs only a part of the input, and no sum at the end
# - c: 2.5 times as much: the wide hidden layer is now what ranks exchange

# %%
PREDICTION_2 = ""
PLAN = {"1": "column", "3": "row"}

# %% [markdown]
# ## 3. A test that starts at zero
# A wrong layer by rows adds the bias on every rank, before the sum of the partial results. A test takes one
# step on three ranks and compares all gradients with the serial ones; the biases of that layer start at the
# numbers below, and the test finds the mistake. Edit: let them all start at 0, as in many networks. What
# does the test find?
#
# - a: the gradient of that bias is three times too large, all others are right
# - b: all gradients are wrong, as before, but by less
# - c: nothing: all gradients are right

# %%
PREDICTION_3 = ""
BIASES_AT_THE_START = [0.5, -0.5, 0.25, 0.0]


if __name__ == "__main__":
    print("the layers by name:", PLAN)
