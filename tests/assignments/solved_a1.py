"""Assignment a1 as a student would solve it by its README."""

import numpy as np


def linear(x, weight, bias):
    def to_x(g):
        return g @ weight

    def to_weight(g):
        return g.T @ x

    def to_bias(g):
        return g.sum(axis=0)

    return x @ weight.T + bias, (to_x, to_weight, to_bias)


def relu(x):
    passes = x > 0
    return x * passes, (lambda g: g * passes,)


def cross_entropy(logits, labels):
    n, rows = max(len(logits), 1), np.arange(len(logits))
    z = logits - logits.max(axis=1, keepdims=True)
    log_p = z - np.log(np.exp(z).sum(axis=1, keepdims=True))

    def to_logits(g):
        d = np.exp(log_p)
        d[rows, labels] -= 1
        return (d * (g / n)).astype(logits.dtype)

    return -log_p[rows, labels].sum() / n, (to_logits,)


def conv2d(x, weight, bias, *, stride=1, padding=0):
    (n, c, h, w), (f, _, kh, kw) = x.shape, weight.shape
    padded = np.zeros((n, c, h + 2 * padding, w + 2 * padding), x.dtype)
    padded[:, :, padding : padding + h, padding : padding + w] = x
    rows, columns = (h + 2 * padding - kh) // stride + 1, (w + 2 * padding - kw) // stride + 1

    def window(i, j):
        down, right = (
            slice(i, i + (rows - 1) * stride + 1, stride),
            slice(j, j + (columns - 1) * stride + 1, stride),
        )
        return slice(None), slice(None), down, right

    value = np.zeros((n, f, rows, columns), x.dtype) + bias[:, None, None]
    for i, j in np.ndindex(kh, kw):
        value += np.einsum("nchw,fc->nfhw", padded[window(i, j)], weight[:, :, i, j])

    def to_x(g):
        d = np.zeros_like(padded)
        for i, j in np.ndindex(kh, kw):
            d[window(i, j)] += np.einsum("nfhw,fc->nchw", g, weight[:, :, i, j])
        return d[:, :, padding : padding + h, padding : padding + w]

    def to_weight(g):
        d = np.zeros_like(weight)
        for i, j in np.ndindex(kh, kw):
            d[:, :, i, j] = np.einsum("nfhw,nchw->fc", g, padded[window(i, j)])
        return d

    return value, (to_x, to_weight, lambda g: g.sum(axis=(0, 2, 3)))


class Node:
    def __init__(self, value, place):
        self.value, self.place = value, place


class Tape:
    def __init__(self):
        self.entries, self.leaves = [], []

    def leaf(self, x):
        self.leaves.append(len(self.entries))
        self.entries.append([])
        return Node(x, self.leaves[-1])

    def constant(self, x):
        return Node(x, None)

    def run(self, op, *inputs, **settings):
        value, pullbacks = op(*[node.value for node in inputs], **settings)
        places = [node.place for node in inputs]
        entry = [(place, pull) for place, pull in zip(places, pullbacks, strict=True) if place is not None]
        if not entry:
            return Node(value, None)
        self.entries.append(entry)
        return Node(value, len(self.entries) - 1)

    def backward(self, output, seed):
        gradients = [None] * len(self.entries)
        if output.place is not None:
            gradients[output.place] = seed.copy()
        for place in reversed(range(len(self.entries))):
            g = gradients[place]
            if g is None:
                continue
            for source, pull in self.entries[place]:
                d = pull(g)
                gradients[source] = d.copy() if gradients[source] is None else gradients[source] + d
        return [gradients[place] for place in self.leaves]
