"""Questions on lesson 04: predict, change, prove.

Write a letter into each prediction before you change anything. Then make the edit that the question asks for,
and run minigrad lesson 04 --check.
"""

import numpy as np

# %% [markdown]
# ## 1. One kernel for three
# y = max(a x + b, 0), with two numbers a and b, for 100 million numbers x on a GPU: three kernels, each a
# list of operations. Edit: one kernel with all three operations. How much faster is it?
#
# - a: hardly: the operations are the same, and only two launches of 10 microseconds are saved
# - b: three times
# - c: twice: x is still read and y written

# %%
PREDICTION_1 = ""
KERNELS = [["multiply"], ["add"], ["maximum"]]


# %% [markdown]
# ## 2. A new array
# A program sends ``a.T`` as memory, and the receiver reads it in C order: the numbers are at wrong places,
# since ``a.T`` is the memory of ``a``. Edit: send ``a.T * 2``, which is a new array. What arrives?
#
# - a: the right numbers at wrong places, as before
# - b: the right array: what NumPy computes is in C order
# - c: the numbers of ``a.T``, since the memory is still that of ``a``

# %%
PREDICTION_2 = ""


def sent(a):
    """What the program sends."""
    return a.T


# %% [markdown]
# ## 3. A faster GPU
# A step launches 36 kernels. A launch takes the host 10 microseconds, and each kernel takes the GPU 10, while
# the host goes on to the next launch. At the end the host waits for the loss: after 370 microseconds. Edit: a
# GPU on which each kernel takes 5 microseconds. How long does the step take?
#
# - a: 185 microseconds
# - b: about 275 microseconds: half of the time was the GPU's
# - c: 365 microseconds

# %%
PREDICTION_3 = ""
KERNEL = 10e-6


# %% [markdown]
# ## 4. Any order, without a copy
# Edit: write the function below. Let x be in C order, with three axes. Which arrays can be sent without
# copying them first, if the receiver is told how their axes lie in memory?
#
# - a: x and x.T: a contiguous array is in C order or in Fortran order
# - b: x, x.T and x.transpose(0, 2, 1), but not x[::2]
# - c: all of these: they are views of the same memory

# %%
PREDICTION_4 = ""


def pack(x):
    """The axes of ``x`` from the outermost to the innermost in memory, and its numbers as they lie there.

    The numbers are an array of one axis, without gaps. It is a copy only where ``x`` has gaps or runs
    backwards. ``numbers.reshape([x.shape[i] for i in axes]).transpose(np.argsort(axes))`` is ``x`` again.
    """
    return list(range(x.ndim)), x.ravel()


if __name__ == "__main__":
    x = np.arange(24).reshape(2, 3, 4)
    print("x with two axes exchanged:", *pack(x.transpose(0, 2, 1)))
