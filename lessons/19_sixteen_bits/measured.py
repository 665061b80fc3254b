"""What lesson 19 measures: errors of gradients, bytes of arrays, and sums by ranks."""

import numpy as np

from backends.comm import run_ranks
from backends.comm.trace import Traced
from minigrad import Tape


def median_error(net, seed, right):
    """The median over the parameters of a gradient's largest error, relative to its largest element.

    The gradients of ``net`` belong to ``seed`` times the loss, the ``right`` ones to the loss.
    """
    errors = []
    for parameter, g in zip(net.parameters(), right, strict=True):
        with np.errstate(invalid="ignore"):
            own = np.zeros_like(g) if parameter.grad is None else parameter.grad.astype(np.float64) / seed
            errors.append(np.nan_to_num(np.abs(own - g).max() / np.abs(g).max(), nan=np.inf))
    return float(np.median(errors))


def bytes_of_a_parameter(net, adam):
    """Bytes for one number of the parameters, by what holds them, counted from the arrays themselves."""
    numbers = sum(p.size for p in net.parameters())
    arrays = {"parameter": [p.data for p in net.parameters()], "gradient": [p.grad for p in net.parameters()]}
    for name in ("m", "s", "master"):
        arrays[name] = [state[name] for state in adam.state if name in state]
    return {name: sum(a.nbytes for a in some) / numbers for name, some in arrays.items()}


def bytes_for_backward(net, batch, loss_of):
    """What the tape holds between forward and backward."""
    with Tape() as tape:
        loss_of(net(batch.x), batch.y)
        return tape.nbytes


def sums_of_ranks(allreduce, xs):
    """What an all-reduce of the rows of xs, one for each rank, gives on each; the bytes that rank 0 sent."""

    def on_a_rank(comm):
        traced = Traced(comm)
        with np.errstate(over="ignore"):  # a sum may be infinite, and each thread has its own setting
            total = allreduce(traced, xs[comm.rank])
        return total, traced.record.ledger.sent().bytes

    sums, sent = zip(*run_ranks(len(xs), on_a_rank), strict=True)
    return sums, sent[0]
