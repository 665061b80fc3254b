"""Assignment a6 as a student would solve it by its README."""

import numpy as np

from backends.comm.collectives import ring_allreduce


def column_forward(comm, x, w, b):
    return x @ w.T + b, (x, w)


def column_backward(comm, saved, g):
    x, w = saved
    return ring_allreduce(comm, g @ w), g.T @ x, g.sum(0)


def row_forward(comm, x, w, b):
    return ring_allreduce(comm, x @ w.T) + b, (x, w)


def row_backward(comm, saved, g):
    x, w = saved
    return g @ w, g.T @ x, g.sum(axis=0)


def block_forward(comm, x, w1, b1, w2, b2):
    h, first = column_forward(comm, x, w1, b1)
    y, second = row_forward(comm, np.maximum(h, 0), w2, b2)
    return y, (first, h > 0, second)


def block_backward(comm, saved, g):
    first, positive, second = saved
    da, dw2, db2 = row_backward(comm, second, g)
    dx, dw1, db1 = column_backward(comm, first, da * positive)
    return dx, dw1, db1, dw2, db2


def overlap(heights, radius, owner, asker):
    """First and last row, in the image, that asker wants and owner has."""
    if heights[asker] == 0:
        return 0, 0
    start, first = sum(heights[:owner]), sum(heights[:asker])
    low = max(start, first - radius)
    return low, max(low, min(start + heights[owner], first + heights[asker] + radius))


def halo(comm, x, heights, radius):
    me, mine = comm.rank, sum(heights[: comm.rank])
    rows = heights[me] + 2 * radius if heights[me] else 0
    y = np.zeros((x.shape[0], x.shape[1], rows, x.shape[3]))
    finishes = []
    for r in range(comm.size):
        low, high = overlap(heights, radius, me, r)
        if low < high and r != me:
            finishes.append(comm.start_send(x[:, :, low - mine : high - mine], r))
    for r in range(comm.size):
        low, high = overlap(heights, radius, r, me)
        if low < high:
            top = mine - radius
            y[:, :, low - top : high - top] = x if r == me else comm.recv(r)
    for finish in finishes:
        finish()
    return y


def halo_backward(comm, g, heights, radius):
    me, mine = comm.rank, sum(heights[: comm.rank])
    dx = g[:, :, radius : radius + heights[me]].copy()
    finishes = []
    for r in range(comm.size):
        low, high = overlap(heights, radius, r, me)
        if low < high and r != me:
            top = mine - radius
            finishes.append(comm.start_send(g[:, :, low - top : high - top], r))
    for r in range(comm.size):
        low, high = overlap(heights, radius, me, r)
        if low < high and r != me:
            dx[:, :, low - mine : high - mine] += comm.recv(r)
    for finish in finishes:
        finish()
    return dx


def conv_forward(comm, x, w, heights):
    radius = w.shape[2] // 2
    tall = np.pad(halo(comm, x, heights, radius), ((0, 0), (0, 0), (0, 0), (radius, radius)))
    saved = tall, w, heights
    if heights[comm.rank] == 0:
        return np.zeros((len(x), len(w), 0, x.shape[3])), saved
    return convolve(tall, w), saved


def conv_backward(comm, saved, g):
    tall, w, heights = saved
    radius = w.shape[2] // 2
    dtall, dw = np.zeros_like(tall), np.zeros_like(w)
    if heights[comm.rank]:
        dtall, dw = convolve_backward(tall, w, g)
    dx = halo_backward(comm, dtall[:, :, :, radius : dtall.shape[3] - radius], heights, radius)
    return dx, ring_allreduce(comm, dw)


def convolve(x, w):
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], axis=(2, 3))
    return np.einsum("nchwij,fcij->nfhw", windows, w)


def convolve_backward(x, w, g):
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], axis=(2, 3))
    dx = np.zeros_like(x)
    for i, j in np.ndindex(w.shape[2:]):
        dx[:, :, i : i + g.shape[2], j : j + g.shape[3]] += np.einsum("nfhw,fc->nchw", g, w[:, :, i, j])
    return dx, np.einsum("nfhw,nchwij->fcij", g, windows)
