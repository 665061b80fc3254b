"""How training by servers ends: the first gathers and tells, in plain messages, as a worker may be missing.

A collective would wait for the missing one.
Lecture section: asynchronous parameter server. Lesson: 08_parameter_server.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from minigrad.device import Array, array_module

from ..comm.communicator import Communicator, RankEnded
from .server import Lost, Server, Watching, server_lost

LAST, RESULT, TAKEN = 30203, 30204, 30205  # tags


def at_first(comm: Communicator, server: Server, workers: int, watch: Watching) -> list[Array]:
    """On the first server: gather from all that are there, and send each of them the results.

    These are the parameters, the workers' mean running statistics (see ``mean_of``) and the report, as
    JSON in bytes. Returns when all have them: from then on nobody waits for this rank.
    """
    others = set(range(comm.size)) - {comm.rank}
    last = gather(comm, server, others, LAST, watch)
    parts = [server.weights, *(last[rank] for rank in range(workers + 1, comm.size))]
    mean = mean_of([last[rank] for rank in range(workers) if rank in last], server.weights)
    report = np.frombuffer(json.dumps(server.report()).encode(), np.uint8)
    results = [array_module(mean).concatenate(parts), mean, report]
    for rank in last:
        for result in results:
            comm.send(result, rank, RESULT)
    gather(comm, server, last, TAKEN, watch)
    return results


def at_others(comm: Communicator, last: Array, first: int) -> list[Array]:
    """Send the ``first`` server what this rank has, ``last``; the results."""
    comm.send(last, first, LAST)
    try:
        results = [comm.recv(first, RESULT) for _ in range(3)]
    except RankEnded as ended:
        raise server_lost(ended.rank) from ended
    comm.send(np.empty(0, np.uint8), first, TAKEN)
    return results


def gather(
    comm: Communicator, server: Server, ranks: Iterable[int], tag: int, watch: Watching
) -> dict[int, Array]:
    """What each of ``ranks`` sends; ``server`` loses the workers that end instead."""
    found, missing = {}, set(ranks)
    while missing:
        watch(missing, dict.fromkeys(missing, tag))
        try:
            rank, x = comm.recv_any(tag)
            found[rank] = x
        except RankEnded as ended:
            rank = ended.rank
            server.lose(rank, ended.reason)
        missing.discard(rank)
    return found


def weighed(statistics: Sequence[Array], weight: float, like: Array) -> Array:
    """``weight``, and the statistics times it; of weight 0 only zeros, whatever they are."""
    xp = array_module(like)
    dtype = statistics[0].dtype if statistics else like.dtype
    if not weight:
        return xp.zeros(1 + sum(s.size for s in statistics), dtype)
    return xp.concatenate([xp.ones(1, dtype), *(s.reshape(-1) for s in statistics)]) * weight


def mean_of(messages: Sequence[Array], like: Array) -> Array:
    """The mean of what ``weighed`` made; empty where all weights are 0."""
    total = like[:1] * 0 if not messages else messages[0].copy()
    for message in messages[1:]:
        total += message
    return total[1:] / total[0] if float(total[0]) else total[:0]


def warn_of(lost: Mapping[int, Lost]) -> None:
    """Warn of each worker that left."""
    for rank, (steps, reason, applied) in lost.items():
        text = f"worker {rank} left after {steps} steps ({reason}); {applied} of its gradients were applied"
        warnings.warn(text, stacklevel=3)


def lay_back(flat: Array, arrays: Iterable[Array]) -> None:
    """Fill ``arrays`` with what lies end to end in ``flat``."""
    start = 0
    for array in arrays:
        array[...] = flat[start : start + array.size].reshape(array.shape)
        start += array.size
