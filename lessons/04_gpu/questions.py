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
# ``a`` is in C order. A program passes the memory of ``a.T`` to a library, which reads it in C order: the
# numbers are at wrong places, since ``a.T`` is the memory of ``a``. Edit: pass ``a.T * 2``, which is a new
# array. What does the library read?
#
# - a: the right numbers at wrong places, as before
# - b: the right array: the arrays that NumPy computes are in C order
# - c: the numbers of ``a.T``, since the memory is still the memory of ``a``

# %%
PREDICTION_2 = ""


def passed_array(a):
    """The array whose memory the program passes."""
    return a.T


# %% [markdown]
# ## 3. A faster GPU
# A step launches 36 kernels. A launch takes the host 10 microseconds, and each kernel takes the GPU 10, while
# the host continues with the next launch. At the end the host waits for the loss; the step has then taken 370
# microseconds. Edit: a GPU on which each kernel takes 5 microseconds. How long does the step take?
#
# - a: 185 microseconds
# - b: about 275 microseconds: half of the time was the GPU's
# - c: 365 microseconds

# %%
PREDICTION_3 = ""
KERNEL = 10e-6


# %% [markdown]
# ## 4. Any order, without a copy
# Edit: write the function below. Let x be in C order, with three axes. Which arrays can be passed to another
# program without a copy, if it is told the order of their axes in memory?
#
# - a: x and x.T: a contiguous array is in C order or in Fortran order
# - b: x, x.T and x.transpose(0, 2, 1), but not x[::2]
# - c: all of these: they are views of the same memory

# %%
PREDICTION_4 = ""


def pack(x):
    """The axes of ``x`` from the outermost to the innermost in memory, and its numbers in memory order.

    The numbers are an array of one axis, without gaps. It is a copy only if ``x`` has gaps or runs backwards.
    ``numbers.reshape([x.shape[i] for i in axes]).transpose(np.argsort(axes))`` is ``x`` again.
    """
    return list(range(x.ndim)), x.ravel()


if __name__ == "__main__":
    x = np.arange(24).reshape(2, 3, 4)
    print("x with two axes exchanged:", *pack(x.transpose(0, 2, 1)))
