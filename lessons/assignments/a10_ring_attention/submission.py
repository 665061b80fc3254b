"""Assignment a10: attention over a ring of ranks. README.md has the formulas, and what each rank sends.

A row of S tokens is cut over p ranks: rank r has the n_r tokens whose places in the row are columns[r], and
of these the queries, keys and values, arrays of the shape (n_r, D). All ranks have ``columns``, and
``documents``: for each place of the row the number of its document, -1 for padding.

All arrays of numbers are float64. Inputs are left as they were, and results are new arrays. A rank may have
no tokens. p = comm.size, r = comm.rank; ranks are meant modulo p. A send may wait until its receiver
receives. Import NumPy, and nothing of the library.
"""

import numpy as np  # noqa: F401

# Given: what may be seen, and a swap with the neighbors that cannot deadlock


def allowed(queries, keys, documents):
    """Which query may see which key, (queries, keys), by their places in the row.

    A token sees itself and the tokens before it, in its own document. Padding sees nothing, and is seen by
    no token.
    """
    one_document = documents[queries][:, None] == documents[keys][None, :]
    return one_document & (documents[queries] >= 0)[:, None] & (keys[None, :] <= queries[:, None])


def send_recv(comm, x, to, source):
    """The array that rank ``source`` sends, while ``x`` goes to rank ``to``."""
    finish = comm.start_send(x, to)
    received = comm.recv(source)
    finish()
    return received


# 1. Some keys


def tile(q, k, v, mask):
    """``o`` and ``lse`` of the queries q (n, D) on the keys k (m, D) with the values v (m, D).

    mask (n, m) says which query may see which key. o (n, D) is the mean of the values by the softmax of the
    scores q k / sqrt(D) of the keys that a query sees. lse (n,) is the logarithm of the sum of the
    exponentials of these scores. A query that sees no key has o = 0 and lse = -inf.
    """
    raise NotImplementedError("task 1: scores may be as large as 10000, and n or m may be 0")


# 2. Two results become one


def merge(o, lse, other, other_lse):
    """``o`` and ``lse`` of the same queries on the keys of both, which have no key in common."""
    raise NotImplementedError("task 2: each of the two means counts by its sum of exponentials")


# 3. Who has which tokens


def zigzag(tokens, ranks):
    """The columns of each rank, a list of ``ranks`` rising arrays of integers.

    The row is cut into 2 ranks blocks, those of numpy.array_split; rank r has block r from the left, and
    block r from the right.
    """
    raise NotImplementedError("task 3: a cheap block and its dear partner")


# 4. Keys and values go round


def ring_forward(comm, q, k, v, columns, documents):
    """``o`` and ``lse`` of this rank's queries on all keys of the row that they may see.

    In step t = 0 to p - 1 the keys and values of rank r - t are here. Between the steps both are sent to
    rank r + 1, as two messages: 2 (p - 1) messages in all, empty ones too.
    """
    raise NotImplementedError(
        "task 4: merge what each rank's keys give; a mask without True saves no message"
    )


# 5. Their gradients go behind them


def ring_backward(comm, q, k, v, o, lse, g, columns, documents):
    """The gradients of this rank's q, k and v from ``g`` (n_r, D), that of o.

    o and lse are what ring_forward gave. Keys and values go round as before, 2 (p - 1) messages. The
    gradients of a rank's keys and values begin at the next rank as zeros, are added to on each rank behind
    their keys, and come home in p - 1 hops to rank r + 1: 2 (p - 1) more messages.
    """
    raise NotImplementedError("task 5: what rank r's own queries give to its own keys never travels")


# 6. A message while one computes


def overlapped_forward(comm, q, k, v, columns, documents):
    """What ``ring_forward`` gives, on a clock: each tile takes time, and so does each message.

    Call comm.compute(pairs) for each tile, with the number of pairs that its mask allows. Each step lasts as
    long as its tile or its messages, whichever takes longer.
    """
    raise NotImplementedError("task 6: start to send and to receive, compute, then finish both")
