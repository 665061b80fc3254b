"""Assignment a10 as a student would solve it by its README."""

import numpy as np


def allowed(queries, keys, documents):
    one_document = documents[queries][:, None] == documents[keys][None, :]
    return one_document & (documents[queries] >= 0)[:, None] & (keys[None, :] <= queries[:, None])


def send_recv(comm, x, to, source):
    finish = comm.start_send(x, to)
    received = comm.recv(source)
    finish()
    return received


def scores_of(q, k, mask):
    return np.where(mask, q @ k.T / np.sqrt(q.shape[1]), -np.inf)


def finite(x):
    return np.where(x == -np.inf, 0.0, x)


def tile(q, k, v, mask):
    s = scores_of(q, k, mask)
    m = finite(s.max(axis=1, initial=-np.inf))
    e = np.exp(s - m[:, None])
    total = e.sum(axis=1)
    lse = np.where(total > 0, np.log(np.where(total > 0, total, 1.0)) + m, -np.inf)
    return e @ v / np.where(total > 0, total, 1.0)[:, None], lse


def merge(o, lse, other, other_lse):
    both = np.logaddexp(lse, other_lse)
    n = finite(both)
    return o * np.exp(lse - n)[:, None] + other * np.exp(other_lse - n)[:, None], both


def zigzag(tokens, ranks):
    blocks = np.array_split(np.arange(tokens), 2 * ranks)
    return [np.concatenate([blocks[r], blocks[2 * ranks - 1 - r]]) for r in range(ranks)]


def to_next(comm, arrays):
    return [send_recv(comm, x, (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size) for x in arrays]


def ring_forward(comm, q, k, v, columns, documents):
    o, lse, block = np.zeros(v.shape), np.full(len(q), -np.inf), [k, v]
    for t in range(comm.size):
        mask = allowed(columns[comm.rank], columns[(comm.rank - t) % comm.size], documents)
        if mask.any():
            o, lse = merge(o, lse, *tile(q, block[0], block[1], mask))
        if t < comm.size - 1:
            block = to_next(comm, block)
    return o, lse


def tile_backward(q, k, v, mask, lse, g, delta):
    p = np.exp(scores_of(q, k, mask) - finite(lse)[:, None])
    ds = p * (g @ v.T - delta[:, None]) / np.sqrt(q.shape[1])
    return ds @ k, ds.T @ q, p.T @ g


def ring_backward(comm, q, k, v, o, lse, g, columns, documents):
    delta = (g * o).sum(axis=1)
    dq, home = np.zeros(q.shape), [np.zeros(k.shape), np.zeros(v.shape)]
    block, sums = [k, v], home
    for t in range(comm.size):
        if t:
            block = to_next(comm, block)
            sums = [np.zeros(x.shape) for x in block] if t == 1 else to_next(comm, sums)
        mask = allowed(columns[comm.rank], columns[(comm.rank - t) % comm.size], documents)
        a, b, c = tile_backward(q, block[0], block[1], mask, lse, g, delta)
        dq += a
        sums[0] += b
        sums[1] += c
    if comm.size > 1:
        dk, dv = to_next(comm, sums)
        home = [home[0] + dk, home[1] + dv]
    return dq, home[0], home[1]


def overlapped_forward(comm, q, k, v, columns, documents):
    o, lse, block = np.zeros(v.shape), np.full(len(q), -np.inf), [k, v]
    for t in range(comm.size):
        finishes, sends = [], []
        if t < comm.size - 1:
            finishes = [comm.start_recv((comm.rank - 1) % comm.size) for _ in block]
            sends = [comm.start_send(x, (comm.rank + 1) % comm.size) for x in block]
        mask = allowed(columns[comm.rank], columns[(comm.rank - t) % comm.size], documents)
        comm.compute(mask.sum())
        o, lse = merge(o, lse, *tile(q, block[0], block[1], mask))
        if finishes:
            block = [finish() for finish in finishes]
            for finish in sends:
                finish()
    return o, lse
