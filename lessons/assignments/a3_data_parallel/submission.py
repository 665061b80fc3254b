"""Assignment a3: data parallelism, from the share of a batch to gradients in buckets. README.md has the text.

Arrays are NumPy's, in float64. ``comm`` has ``rank`` and ``size``, and what the task says. Import NumPy, and
nothing of the library.
"""

import numpy as np  # noqa: F401


def share(n, ranks, rank):
    """Which of ``n`` samples are ``rank``'s: (start, stop), as whole numbers.

    The shares of ranks 0, 1, ..., ranks - 1 follow one another, without gaps, from 0 to n; their sizes
    differ by at most one.
    """
    raise NotImplementedError("task 1: cut n samples into shares")


def broadcast_parameters(comm, parameters):
    """Write rank 0's ``parameters``, a list of arrays, into the arrays of every other rank; returns nothing.

    ``comm.send(x, to)`` and ``comm.recv(source)`` are what there is. All ranks have the same shapes. Rank 0
    sends one message to each other rank, with all parameters in it.
    """
    raise NotImplementedError("task 2: pack, send, unpack into the arrays that are there")


def gradients(comm, parameters, backward, x, y, n):
    """(loss, list of gradients) of the mean loss over all ``n`` samples of a batch, on every rank.

    ``x`` and ``y`` are this rank's samples: any number of the n, also 0 or all. ``backward(x, y)`` gives
    (loss, list of gradients) of the mean loss over those samples, and cannot do so for none.
    ``parameters`` are arrays, to have the gradients' shapes from. ``comm.allreduce(v)`` is the sum of the
    one-dimensional ``v`` over all ranks: a new array, with the same bits on all. Call it once.
    """
    raise NotImplementedError("task 3: weigh, pack, all-reduce, unpack")


def buckets(sizes, most):
    """Lists of parameter numbers: in which message each gradient travels.

    ``sizes`` are the parameters' bytes in the order of forward. Go through them in the order of backward,
    the last one first; a bucket takes the next parameter as long as it then holds at most ``most`` bytes.
    One that is larger by itself travels alone.
    """
    raise NotImplementedError("task 4: fill buckets from the last parameter on")


class Reducer:
    """Sums gradients over all ranks while backward still computes others."""

    def __init__(self, comm, shapes, buckets):
        """Called once; ``shapes`` are the parameters', ``buckets`` what task 4 gives for them.

        ``comm.start_allreduce(v)`` starts to sum the one-dimensional ``v`` over all ranks, and returns a
        function: call it in ``finish`` for the sum, a new array, and leave ``v`` alone until then.
        """
        raise NotImplementedError("task 5: a reducer, its buckets empty")

    def on_grad(self, number, gradient):
        """This rank's gradient of parameter ``number`` is final; ``gradient`` is yours until you return."""
        raise NotImplementedError("task 5: put it into its bucket; start what is complete")

    def finish(self):
        """Backward is over: the list of all summed gradients, in their shapes; ready for the next step."""
        raise NotImplementedError("task 5: start the rest, wait, unpack")
