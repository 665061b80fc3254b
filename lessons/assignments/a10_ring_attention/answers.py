"""The library's own answers to assignment a10."""

import numpy as np

from backends.comm.collectives.send_recv import send_recv

TAG = 0


def finite(x):
    return np.where(np.isneginf(x), 0.0, x)


def weights(q, k, mask, lse):
    """exp(score - lse), 0 where the mask is False."""
    return np.exp(np.where(mask, q @ k.T / np.sqrt(q.shape[1]), -np.inf) - finite(lse)[:, None])


def tile(q, k, v, mask):
    scores = np.where(mask, q @ k.T / np.sqrt(q.shape[1]), -np.inf)
    lse = np.logaddexp.reduce(scores, axis=1, initial=-np.inf)
    return weights(q, k, mask, lse) @ v, lse


def merge(o, lse, other, other_lse):
    both = np.logaddexp(lse, other_lse)
    one, two = (np.exp(x - finite(both))[:, None] for x in (lse, other_lse))
    return one * o + two * other, both


def zigzag(tokens, ranks):
    blocks = np.array_split(np.arange(tokens), 2 * ranks)
    return [np.concatenate(pair) for pair in zip(blocks[:ranks], blocks[: -ranks - 1 : -1], strict=True)]


def allowed(queries, keys, documents):
    causal = np.less_equal.outer(keys, queries).T
    return causal & np.equal.outer(documents[queries], documents[keys]) & (documents[queries] >= 0)[:, None]


def passed_on(comm, arrays):
    return [send_recv(comm, x, (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size, TAG) for x in arrays]


def masks(comm, columns, documents):
    """The masks of all steps: which of this rank's queries see which of the keys that are here."""
    mine = columns[comm.rank]
    return [allowed(mine, columns[(comm.rank - t) % comm.size], documents) for t in range(comm.size)]


def ring_forward(comm, q, k, v, columns, documents):
    first, *others = masks(comm, columns, documents)
    result, block = tile(q, k, v, first), [k, v]
    for mask in others:
        block = passed_on(comm, block)
        result = merge(*result, *tile(q, *block, mask))
    return result


def ring_backward(comm, q, k, v, o, lse, g, columns, documents):
    delta = (g * o).sum(axis=1, keepdims=True)

    def gradients(keys, values, mask):
        w = weights(q, keys, mask, lse)
        slopes = w * (g @ values.T - delta) / np.sqrt(q.shape[1])
        return slopes @ keys, slopes.T @ q, w.T @ g

    first, *others = masks(comm, columns, documents)
    dq, *home = gradients(k, v, first)
    block, sums = [k, v], []
    for mask in others:
        block = passed_on(comm, block)
        part, *of_block = gradients(*block, mask)
        dq = dq + part
        sums = [x + y for x, y in zip(passed_on(comm, sums) or [0.0, 0.0], of_block, strict=True)]
    return dq, *(x + y for x, y in zip(home, passed_on(comm, sums) or [0.0, 0.0], strict=True))


def overlapped_forward(comm, q, k, v, columns, documents):
    result, block = (np.zeros_like(v), np.full(len(q), -np.inf)), [k, v]
    for t, mask in enumerate(masks(comm, columns, documents)):
        last = t == comm.size - 1
        receives = [] if last else [comm.start_recv((comm.rank - 1) % comm.size) for _ in block]
        sends = [] if last else [comm.start_send(x, (comm.rank + 1) % comm.size) for x in block]
        comm.compute(int(mask.sum()))
        result = merge(*result, *tile(q, *block, mask))
        block = [finish() for finish in receives]
        for finish in sends:
            finish()
    return result
