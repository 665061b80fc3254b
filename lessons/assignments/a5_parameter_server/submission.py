"""Assignment a5: an asynchronous, sharded parameter server. README.md has the messages and the rules.

Ranks 0 to ``workers`` - 1 are workers, all later ranks are servers: server s is rank ``workers`` + s, and
there are S = ``comm.size - workers`` of them. ``comm`` has ``rank``, ``size``, ``send(x, to)``,
``start_send(x, to)`` (call what it returns to finish), ``recv(source)``, ``start_recv(source)``, and
``recv_any()``, which gives (source, array); each takes a ``tag``, 0 unless given.

All arrays are float64 and of one dimension. Inputs are left as they were, results are new arrays, and a
send may wait until its receiver receives. Import NumPy, and nothing of the library.
"""

import numpy as np  # noqa: F401


def cut(elements, servers):
    """A list of slices, one for each server: server s holds elements n s // S to n (s + 1) // S of n."""
    raise NotImplementedError("task 1: one slice for each server")


def work(comm, workers, parameters, steps, gradient):
    """A worker: ``steps`` times compute, push, pull; then tell the servers that it ends.

    ``gradient(parameters)`` gives the gradient. The first is that of ``parameters``, which the servers have
    too, as version 0. Each step sends every server [version, its part of the gradient], and takes its
    answer [version, its part of the parameters]. Each push names the version of *this* server's last
    answer. At the end an empty array to every server, which gets no answer. Returns the parameters of the
    last answers.
    """
    raise NotImplementedError("task 2: compute, push to every server, pull from every server")


def serve(comm, workers, part, rate):
    """An asynchronous server, which holds ``part`` of the parameters: (its part in the end, staleness).

    Each gradient is applied as it comes, part -= rate * gradient, which makes the next version, and its
    worker is answered before the next message is received. Returns when all workers have ended.
    ``staleness`` is a dictionary: how many gradients had 0, 1, 2, ... updates between the version that they
    were computed with and the one that they changed.
    """
    raise NotImplementedError("task 3: receive from any worker, apply, count, answer")


def serve_bounded(comm, workers, part, rate, bound):
    """Serve with bounded staleness: a worker too far ahead gets its answer later.

    A worker's clock is the number of its pushes. It is answered as soon as its clock is at most ``bound``
    ahead of the slowest worker's that has not ended, with the version and the parameters of that moment.
    """
    raise NotImplementedError("task 4: hold answers back until the slowest worker has come closer")


def train(comm, workers, parameters, steps, gradient, rate, bound):
    """All together, called on all ranks: the trained parameters, whole, on every rank.

    All ranks have the same ``parameters``. ``steps`` is this worker's own number, which may be 0, and
    ``gradient`` its own function; on a server 0 and None. After its workers have ended each server sends its
    part to every other rank, workers and servers: S (steps + 1) messages from a worker, and from a server
    one for each push that it got, and comm.size - 1.
    """
    raise NotImplementedError("task 5: work or serve, then everyone gets every part")
