"""Assignment a6: layers that are split over ranks, by neurons and in space. README.md has the pictures.

Every rank calls the same function with its own part. A forward function returns its result and ``saved``,
whatever the backward function is to have of it. A backward function turns the gradient of the result into
that of the inputs, in their order and shapes.

All arrays are float64. Inputs are left as they were, and results are new arrays. p = comm.size; some ranks
may have an empty part. Bytes are counted over all ranks together, an all-reduce of n bytes as 2 (p - 1) n.
"""

import numpy as np

from backends.comm.collectives import ring_allreduce  # noqa: F401  ring_allreduce(comm, x): the sum

# 1. A linear layer whose neurons are cut


def column_forward(comm, x, w, b):
    """y = x w.T + b of this rank's neurons, and ``saved``; no message.

    x (samples, inputs) is whole, w (own neurons, inputs), b (own neurons,).
    """
    raise NotImplementedError("task 1: no message")


def column_backward(comm, saved, g):
    """The gradients of x, w, b from g (samples, own neurons), that of y; one all-reduce of x's size.

    That of x is whole, and the same on all ranks.
    """
    raise NotImplementedError("task 1: one all-reduce")


# 2. A linear layer whose inputs are cut


def row_forward(comm, x, w, b):
    """y = x w.T + b, whole, on all ranks, and ``saved``; one all-reduce of y's size.

    x (samples, own inputs), w (neurons, own inputs), and b (neurons,) whole, the same on all ranks.
    """
    raise NotImplementedError("task 2: one all-reduce; how often is the bias added?")


def row_backward(comm, saved, g):
    """The gradients of x, w, b from g (samples, neurons), that of y, the same on all ranks; no message."""
    raise NotImplementedError("task 2: no message")


# 3. One behind the other


def block_forward(comm, x, w1, b1, w2, b2):
    """y = relu(x w1.T + b1) w2.T + b2, whole, on all ranks, and ``saved``; one all-reduce of y's size.

    x whole, w1 (own neurons, inputs), b1 (own neurons,), w2 (outputs, own neurons), b2 (outputs,) whole.
    """
    raise NotImplementedError("task 3: tasks 1 and 2 in a row, nothing in between")


def block_backward(comm, saved, g):
    """The gradients of x, w1, b1, w2, b2 from g, that of y, whole; one all-reduce of x's size."""
    raise NotImplementedError("task 3: back in the other order")


# 4. Rows of an image, and the neighbours' rows that a window looks at


def halo(comm, x, heights, radius):
    """This rank's rows and ``radius`` more on each side; zeros where the image ends.

    x (samples, channels, heights[comm.rank], width) is this rank's part of the image: the ranks have
    ``heights`` rows each, from the top down. The result has heights[comm.rank] + 2 radius rows, on a rank
    without rows none. To each other rank one message, of the rows that it wants and this rank has; none
    where there are none.
    """
    raise NotImplementedError("task 4: who has which of the rows that I want, and who wants mine?")


def halo_backward(comm, g, heights, radius):
    """The gradient of x, from ``g`` of the result of ``halo``: of each row the sum over all who have got it.

    The messages of ``halo`` the other way round, each of the same size.
    """
    raise NotImplementedError("task 4: what was copied to others comes back, and is added")


# 5. A convolution of which each rank computes its own rows


def conv_forward(comm, x, w, heights):
    """This rank's rows of the convolution of the image with w (filters, channels, k, k), and ``saved``.

    k is odd, the stride 1, and the image is bordered by k // 2 zeros: the result has the image's height and
    width. x and ``heights`` are those of ``halo``; w is whole, the same on all ranks. One halo.
    """
    raise NotImplementedError("task 5: the halo, zeros on the left and right, convolve")


def conv_backward(comm, saved, g):
    """The gradients of x and of w from ``g`` (samples, filters, own rows, width), that of the result.

    That of w is the same on all ranks. One halo_backward of x's channels, one all-reduce of w's size.
    """
    raise NotImplementedError("task 5: convolve_backward, and what has to be added up")


# Given: a convolution without border on one machine, and its gradients


def convolve(x, w):
    """x (samples, channels, height, width) * w (filters, channels, k, k): k - 1 rows and columns less."""
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], axis=(2, 3))
    return np.einsum("nchwij,fcij->nfhw", windows, w)


def convolve_backward(x, w, g):
    """The gradients of x and w from ``g``, that of convolve(x, w)."""
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], axis=(2, 3))
    dx = np.zeros_like(x)
    for i, j in np.ndindex(w.shape[2:]):
        dx[:, :, i : i + g.shape[2], j : j + g.shape[3]] += np.einsum("nfhw,fc->nchw", g, w[:, :, i, j])
    return dx, np.einsum("nfhw,nchwij->fcij", g, windows)
