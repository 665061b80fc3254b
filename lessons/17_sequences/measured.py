"""What lesson 17 measures: gradients with the bytes held for them, errors, and what ranks send."""

import numpy as np

from backends.comm import run_ranks
from backends.comm.collectives import ring_allreduce
from backends.comm.communicator import WithAllreduce
from backends.comm.trace import Traced
from backends.laws import differences_from_serial
from minigrad import Tape, Tensor, ops


def gradients(net, arrays):
    """``net(leaves)`` and the gradients of the sum of its squares, by name; and the bytes that the tape held.

    ``arrays`` are by name, and so are the leaves, which are made of them.
    """
    leaves = {name: Tensor(array, requires_grad=True) for name, array in arrays.items()}
    with Tape() as tape:
        y = net(leaves)
    nbytes = tape.nbytes
    tape.backward(y, 2 * y.data)
    return {"y": y.data} | {name: leaf.grad for name, leaf in leaves.items()}, nbytes


def loss_and_gradients(net, loss_of):
    """``loss_of()`` and the gradients of all parameters of the net, one after the other."""
    net.zero_grad()
    with Tape() as tape:
        loss = loss_of()
    tape.backward(loss)
    return float(loss.data), np.concatenate([parameter.grad.ravel() for parameter in net.parameters()])


def attention_by_loops(q, k, v, documents):
    """Causal attention of (B, S, heads, D), by loops over rows, heads, queries and keys."""
    result = np.zeros(v.shape)
    for row, i, head in np.ndindex(v.shape[:3]):
        total = 0.0
        for j in range(i + 1):
            if documents[row, i] == documents[row, j] >= 0:
                e = np.exp(q[row, i, head] @ k[row, j, head] / np.sqrt(q.shape[3]))
                total += e
                result[row, i, head] += e * v[row, j, head]
        result[row, i, head] /= total or 1.0
    return result


def spread_of_scores(n, rng):
    """The standard deviation of products q k of ``n`` random numbers, and means of the largest of 16 weights.

    These are for scores q k, and for q k / sqrt(n).
    """
    scores = np.einsum("nd,nkd->nk", rng.normal(size=(500, n)), rng.normal(size=(500, 16, n)))
    raw, scaled = (ops.softmax(x, axis=1).data.max(axis=1).mean() for x in (scores, scores / np.sqrt(n)))
    return scores.std(), raw, scaled


def losses_of_tables(train, test, symbols):
    """The test losses of tables with the frequencies of symbols, and of pairs, in ``train``.

    Each count is one more than it is, so that a pair that never came is improbable, not impossible.
    """
    counts = np.ones((symbols, symbols))
    np.add.at(counts, (train.x[train.y >= 0], train.y[train.y >= 0]), 1)
    single = counts.sum(axis=0) / counts.sum()
    pairs = counts / counts.sum(axis=1, keepdims=True)
    here, following = test.x[test.y >= 0], test.y[test.y >= 0]
    return -np.log(single[following]).mean(), -np.log(pairs[here, following]).mean()


def largest_error(serial, by_rank, cut=lambda name, rank, ranks: ()):
    """The largest error of any array on any rank, relative to the largest element of the serial one.

    ``cut(name, rank, ranks)`` are the places of an array that a rank has.
    """
    return max(
        np.abs(arrays[name] - whole[cut(name, rank, len(by_rank))]).max(initial=0) / np.abs(whole).max()
        for rank, arrays in enumerate(by_rank)
        for name, whole in serial.items()
    )


def error_in_training(strategy, ranks, build, loss, batch):
    """How far a step by ``strategy`` is from one machine, in the worst gradient on the worst rank."""

    def work(comm):
        return differences_from_serial(strategy, comm, build, loss, [batch])

    return max(difference.relative for difference in run_ranks(ranks, work)[0])


class Counted(WithAllreduce):
    """A communicator with a ring all-reduce, which counts all-reduces, and the messages and bytes sent."""

    def __init__(self, comm):
        super().__init__(Traced(comm), self.ring)
        self.allreduces = 0

    def ring(self, comm, x):
        self.allreduces += 1
        return ring_allreduce(comm, x)

    @property
    def sent(self):
        """Messages and bytes."""
        return self.comm.record.ledger.sent()
