"""Seconds of collectives and training steps by the alpha-beta model, and PipeDream's choice of stages.

A message of n bytes takes alpha + n / B seconds on a ``Link`` of latency alpha and bandwidth B. A rank sends
one message at a time and receives one at a time, as on the library's virtual cluster.
"""

import math
from functools import cache
from itertools import accumulate

import numpy as np

from minigrad.data import shares


def ring_seconds(ranks, nbytes, link):
    """An all-reduce around a ring: 2 (p - 1) messages of a p-th each."""
    return 2 * (ranks - 1) * (link.latency + nbytes / ranks / link.bandwidth)


def halving_seconds(ranks, nbytes, link):
    """An all-reduce by halving and doubling: the ring's bytes in 2 log2 p messages; p is a power of two."""
    return 2 * math.log2(ranks) * link.latency + 2 * nbytes * (ranks - 1) / ranks / link.bandwidth


def ring_bytes(rank, ranks, length, itemsize=4):
    """Bytes that ``rank`` sends in a ring all-reduce, also where its ``length`` numbers do not divide."""
    if ranks == 1:
        return 0
    chunks = [share.stop - share.start for share in shares(length, ranks)]
    return itemsize * (2 * length - chunks[(rank + 1) % ranks] - chunks[(rank + 2) % ranks])


def buckets(layers, size):
    """(bytes, share of backward that is over when they are ready) of each bucket, the last layer's first."""
    backwards = [layer for layer in reversed(layers) if layer.weights]
    have = list(accumulate((4 * layer.weights for layer in backwards), initial=0))
    work = list(accumulate((layer.work for layer in backwards), initial=0))
    ends = [*range(size, have[-1], size), have[-1]]
    ready = np.interp(ends, have, work) / work[-1]
    return list(zip(np.diff([0, *ends]).tolist(), ready.tolist(), strict=True))


def step_seconds(forward, backward, buckets, allreduce):
    """Seconds of a data-parallel step: bucket j is done at C_j = max(R_j, C_(j-1)) + c_j (Li et al. 2020)."""
    end = 0.0
    for nbytes, ready in buckets:
        end = max(forward + ready * backward, end) + allreduce(nbytes)
    return max(forward + backward, end)


def efficiency(seconds, layers, allreduce, bucket_bytes):
    """The efficiency of a step whose computing takes ``seconds``, a third of them forward."""
    parts = buckets(layers, bucket_bytes)
    return seconds / step_seconds(seconds / 3, 2 * seconds / 3, parts, allreduce)


def plan(layers, workers, seconds, batch, bandwidth):
    """PipeDream's choice: seconds for each mini-batch, and its stages as (layers up to here, workers).

    k workers that share a stage each compute every k-th mini-batch of ``batch`` samples, and meanwhile sum
    their gradients around a ring; at the border of two stages activations and their gradients pass one
    link. The pipeline is as fast as the slowest of all these. Source: Narayanan et al. 2019, section 3.1.
    """
    work = np.cumsum([0, *(layer.work for layer in layers)])
    work = seconds * work / work[-1]
    nbytes = 4 * np.cumsum([0, *(layer.weights for layer in layers)])

    def stage(i, j, k):
        computing, summing = work[j] - work[i], 2 * (k - 1) / k * (nbytes[j] - nbytes[i]) / bandwidth
        return max(computing, summing) / k

    @cache
    def best(j, m):  # the first j layers on m workers
        plans = [(stage(0, j, m), ((j, m),))]
        for i in range(1, j):
            border = 2 * 4 * batch * layers[i - 1].outputs / bandwidth
            for k in range(1, m):
                before, stages = best(i, m - k)
                plans.append((max(before, border, stage(i, j, k)), (*stages, (j, k))))
        return min(plans, key=lambda one: (one[0], len(one[1])))

    return best(len(layers), workers)


def transformer_parameters(layers, hidden, vocabulary=51_200, sequence=2048):
    """The parameters of a transformer with blocks of 12 h^2 weights (Narayanan et al. 2021, equation 2)."""
    return (
        12 * layers * hidden**2 * (1 + 13 / (12 * hidden) + (vocabulary + sequence) / (12 * layers * hidden))
    )


def zero_bytes(parameters, ranks, stage, optimizer=12, whole=2):
    """Bytes on each rank: weights and gradients of ``whole`` bytes each, and the optimizer's state.

    Mixed precision and Adam by default. Stage 0 shares nothing, 1 the state, 2 gradients too, 3 weights too.
    """
    parts = [whole, whole, optimizer]  # weights, gradients, state
    return parameters * sum(part / (ranks if stage >= 3 - i else 1) for i, part in enumerate(parts))
