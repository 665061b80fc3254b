"""Questions on lesson 11: predict, change, prove.

Write a letter into each prediction before you change anything. Then make the edit that the question asks for,
and run minigrad lesson 11 --check.
"""

from backends.comm import differentiable
from minigrad import ops

# %% [markdown]
# ## 1. The op in front of the columns
# Three ranks compute y = tanh(x W1) W2: each rank has some columns of W1 and the matching rows of W2. Before
# it meets the columns, x passes the op below. Edit: leave the op out, so that x itself is returned. Which
# gradients are wrong then, on every rank?
#
# - a: the gradients of W1 and x
# - b: only the gradient of x
# - c: the gradients of W1, W2 and x

# %%
PREDICTION_1 = ""


def front(x, comm):
    """The tensor that the columns of W1 are multiplied with."""
    return differentiable.fan_out(x, comm=comm)


# %% [markdown]
# ## 2. Rows first
# Three ranks split two layers, 12 numbers to 24 and back to 12: the first by columns, the second by rows.
# For 6 samples a rank sends 96 numbers forward and 96 backward. Edit: split the first layer by rows and the
# second by columns. The input and the output are whole on every rank, as before. How much does a rank send?
#
# - a: as much as before: there are still one layer by columns and one by rows
# - b: less: a rank needs only a part of the input, and no sum at the end
# - c: 2.5 times as much: the wide hidden layer is now what ranks exchange

# %%
PREDICTION_2 = ""
PLAN = {"1": "column", "3": "row"}

# %% [markdown]
# ## 3. A test that starts at zero
# A wrong layer by rows adds the bias on every rank, before the partial results are summed. A test takes one
# step on three ranks and compares all gradients with the serial ones. The biases of that layer start at the
# numbers below, and the test finds the mistake. Edit: let them all start at 0, as in many networks. What
# does the test find?
#
# - a: the gradient of that bias is three times too large, all others are right
# - b: all gradients are wrong, as before, but by less
# - c: nothing: all gradients are right

# %%
PREDICTION_3 = ""
BIASES_AT_THE_START = [0.5, -0.5, 0.25, 0.0]


# %% [markdown]
# ## 4. A block with types
# Three ranks compute y = tanh(x W1) W2 + b + x: columns, rows, a bias, and a residual connection (+ x). The
# block below, with `fan_out` and `fan_in` written by hand, is wrong. A `TypedTape` checks it in forward,
# before the first step, in which b is 0. What do the types say? Edit: mend the block, so that the types find
# nothing.
#
# - a: that the gradient of b is partial, and that no op sums it
# - b: that b counts three times
# - c: nothing: in this step all gradients are right

# %%
PREDICTION_4 = ""


def block(x, w1, w2, b, comm):
    """This rank has some columns of w1, and the rows of w2 that belong to them; x and b are whole."""
    hidden = ops.tanh(differentiable.fan_out(x, comm=comm) @ w1)
    y = differentiable.fan_in(hidden @ w2 + b, comm=comm)
    return y + x


# %% [markdown]
# ## 5. The other use of x
# In the block below the residual connection also takes the output of `fan_out`. The output is right. The
# gradient of x has two parts: one through the columns, one through the residual connection. Is the gradient
# of x right on three ranks? Edit: mend the block, so that the types find nothing.
#
# - a: right: both parts pass `fan_out`, which sums what must be summed
# - b: the part through the columns is right, the other one counts three times
# - c: both parts count three times

# %%
PREDICTION_5 = ""


def residual(x, w1, w2, comm):
    """The parts of w1 and w2 are as above."""
    front = differentiable.fan_out(x, comm=comm)
    return differentiable.fan_in(ops.tanh(front @ w1) @ w2, comm=comm) + front


# %% [markdown]
# ## 6. Two gathers
# Each of three ranks has some rows of x. All ranks need the whole of x for their columns, and the output is
# whole again. In forward, `join_in` and `all_gather` are the same. In backward, `join_in` takes the rank's
# own rows of its own gradient, while `all_gather` first sums the gradients of all ranks. What is the gradient
# of a rank's rows of x with `join_in`? Edit: mend the block, so that the types find nothing.
#
# - a: only the part that came through this rank's own columns
# - b: three times too large
# - c: right, and `all_gather` would make it three times too large

# %%
PREDICTION_6 = ""


def tokens(x, w1, w2, comm):
    """This rank has some rows of x; the parts of w1 and w2 are as above, and y is whole."""
    whole = differentiable.join_in(x, comm=comm, axis=0)
    return differentiable.fan_in(ops.tanh(whole @ w1) @ w2, comm=comm)


if __name__ == "__main__":
    print("the layers by name:", PLAN)
