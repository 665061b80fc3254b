"""What lesson 18 measures: gradients, by the tape and by differences, errors, bytes, and penalties."""

import numpy as np

from backends.comm import run_ranks
from backends.laws import differences_from_serial
from minigrad import Tape, Tensor
from minigrad.forward_pass import ForwardPass


def gradients(net, arrays):
    """``net(leaves)``, as y, and the gradients of the sum of its squares, by name.

    ``arrays`` are by name, and so are the leaves, which are made of them. What has no part in y has zeros.
    """
    leaves = {name: Tensor(array, requires_grad=True) for name, array in arrays.items()}
    with Tape() as tape:
        y = net(leaves)
    tape.backward(y, 2 * y.data)
    return {"y": y.data} | {
        name: np.zeros_like(leaf.data) if leaf.grad is None else leaf.grad for name, leaf in leaves.items()
    }


def of_layer(layer, x):
    """``layer(x)`` and the gradient of the sum of its squares by x; the parameters keep theirs."""
    layer.zero_grad()
    leaf = Tensor(x, requires_grad=True)
    with Tape() as tape:
        y = layer(leaf)
    tape.backward(y, 2 * y.data)
    return y.data, leaf.grad


def differences(net, arrays, name, h=1e-6):
    """The gradient of the sum of squares of ``net(arrays)`` by one of the arrays, by differences."""
    gradient = np.zeros_like(arrays[name])
    for place in np.ndindex(gradient.shape):
        values = []
        for step in (h, -h):
            moved = arrays[name].copy()
            moved[place] += step
            leaves = {key: Tensor(array) for key, array in (arrays | {name: moved}).items()}
            values.append(float((net(leaves).data ** 2).sum()))
        gradient[place] = (values[0] - values[1]) / (2 * h)
    return gradient


def largest_error(right, arrays):
    """The largest error of any array, relative to the largest element of the right one."""
    return max(
        np.abs(arrays[name] - whole).max(initial=0) / np.abs(whole).max() for name, whole in right.items()
    )


def penalty(experts, x):
    """What a layer adds to the loss of a pass over x."""
    with ForwardPass(0, np.arange(len(x))) as current:
        experts(x)
    return current.penalty()


def errors_in_training(strategy, ranks, build, loss, batches):
    """How far a training by ``strategy`` is from one machine: by parameter, on the worst rank and step."""

    def work(comm):
        return differences_from_serial(strategy, comm, build, loss, batches)

    return {difference.name: difference.relative for difference in run_ranks(ranks, work)[0]}
