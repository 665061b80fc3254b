"""Documents in rows of one length, for lesson 17, and the transformer that takes them."""

import numpy as np

from minigrad import nn, ops
from minigrad.models import transformer

LENGTH = 12
SYMBOLS = "_abcdefghijklmnopqrstuvwxyz"  # "_" for a space


def packed(documents, padding_rows=0):
    """Each document in the first row with room for it: x (rows, LENGTH, 3), and labels (rows, LENGTH).

    x has the number of each symbol, its place in its document, and the number of the document in its row,
    which is -1 for padding.
    """
    rows = []
    for document in documents:
        row = next((row for row in rows if len(document) <= LENGTH - sum(map(len, row))), None)
        if row is None:
            rows.append(row := [])
        row.append(document)
    rows += [[]] * padding_rows
    x, y = np.zeros((len(rows), LENGTH, 3), int), np.full((len(rows), LENGTH), -1)
    x[..., 2] = -1
    for i, row in enumerate(rows):
        start = 0
        for number, document in enumerate(row):
            n, symbols = len(document), [SYMBOLS.index(symbol) for symbol in document]
            x[i, start : start + n] = np.transpose([symbols, range(n), [number] * n])
            y[i, start : start + n - 1] = symbols[1:]
            start += n
    return x, y


def shown(row):
    """The symbols of a row, with a point for padding."""
    return "".join("." if document < 0 else SYMBOLS[symbol] for symbol, _, document in row)


class PackedNet(nn.Module):
    """The library's transformer, with places and documents as ``packed`` gives them."""

    def __init__(self, rng):
        self.net = transformer(rng, symbols=len(SYMBOLS), length=LENGTH, width=16, heads=2, blocks=2)

    def forward(self, x):
        embedding, *blocks, norm, scores = self.net.layers
        symbols, places, documents = np.moveaxis(np.asarray(x), 2, 0)
        h = ops.embedding(embedding.weight, symbols) + ops.embedding(embedding.position, places)
        for block in blocks:
            h = block(h, documents=documents)
        return scores(norm(h))
