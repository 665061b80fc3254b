"""Questions on lesson 02: predict, change, prove.

Write a letter into each prediction before you change anything. Then make the edit that the question asks for,
and run minigrad lesson 02 --check.
"""

import numpy as np

from minigrad import Tensor, ops

# %% [markdown]
# ## 1. A tape that replaces
# Three residual blocks, x <- x + w x with w = 1/2: the output is (1 + w)³ x, and its derivative by x is
# 3.375. A value that is used twice gets a derivative from each use, and the tape below adds the two. Edit:
# let ``backward`` replace ``x.grad`` by the derivative that comes last. Which derivative does it find?
#
# - a: 3.375: both uses have the same blocks after them
# - b: 1: only the direct way through all blocks is left
# - c: 0.125: only the way through all products is left

# %%
PREDICTION_1 = ""


class Node:
    def __init__(self, value):
        self.value, self.grad = value, 0.0


def backward(entries, output):
    """Walk back through ``entries``: (output, inputs, pullbacks) of each operation, in the order they ran."""
    output.grad = 1.0
    for node, inputs, pullbacks in reversed(entries):
        for x, pullback in zip(inputs, pullbacks, strict=True):
            x.grad = x.grad + pullback(node.grad)


def residual_blocks(x, w, blocks=3):
    """The output of the blocks, and the entries of their tape."""
    entries = []
    for _ in range(blocks):
        product = Node(w * x.value)
        entries.append((product, [x], [lambda g: g * w]))
        total = Node(x.value + product.value)
        entries.append((total, [x, product], [lambda g: g, lambda g: g]))
        x = total
    return x, entries


# %% [markdown]
# ## 2. One trained layer
# Four layers of 128 units: forward takes 4 products of matrices, and backward 7, since the gradient of the
# pixels is not needed. Edit: freeze all layers but the first. How many products does backward take?
#
# - a: 1
# - b: 4
# - c: 7

# %%
PREDICTION_2 = ""
TRAINED = (True, True, True, True)


# %% [markdown]
# ## 3. A buffer that is filled again
# A program computes x * w with x = 2 and w = 3. Before backward it reads the next batch into the memory of x,
# which becomes 0. The tape holds arrays, not copies: the gradient of w is computed as 0 instead of 2. Edit:
# the program computes sigmoid(x) * w. Which gradients are wrong now?
#
# - a: none
# - b: the gradient of x: the derivative of the sigmoid is taken at the new x
# - c: the gradients of x and of w: both depend on x

# %%
PREDICTION_3 = ""


def function(x, w):
    """What the program computes."""
    return x * w


if __name__ == "__main__":
    x = Node(1.0)
    y, entries = residual_blocks(x, 0.5)
    backward(entries, y)
    print("derivative of the blocks:", x.grad)
    print("sigmoid(2) * 3 =", (ops.sigmoid(Tensor(np.array([2.0]))) * 3.0).data)
