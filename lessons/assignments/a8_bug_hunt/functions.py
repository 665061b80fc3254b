"""Right and wrong functions that properties 1, 3 and 5 of assignment a8 are tried on, besides the starter's.

Whoever wants to find out whether a property is good writes it before reading this.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from minigrad_course.grading.assignment import load_file

from backends.comm import allreduce, broadcast, gather
from backends.comm.collectives import allgather

starter: Any = load_file(Path(__file__).parent / "submission.py", "starter_of_a8")


# 1. The mean over all samples


def weighted_before(comm, gradient, samples):
    """Right: each rank weighs its own by its share of the samples."""
    count = float(allreduce(comm, np.array(float(samples))))
    return allreduce(comm, gradient * (samples / count if count else 0.0))


def by_the_first_rank(comm, gradient, samples):
    """Right: rank 0 computes it."""
    gradients, counts = gather(comm, gradient), gather(comm, np.array(samples))
    mean = np.zeros_like(gradient)
    if gradients and sum(counts):
        mean = sum(g * n for g, n in zip(gradients, counts, strict=True)) / sum(counts)
    return broadcast(comm, np.asarray(mean))


def mean_of_those_with_samples(comm, gradient, samples):
    """Wrong: a mean of means, over the ranks that have any."""
    return allreduce(comm, gradient) / max(float(allreduce(comm, np.array(float(samples > 0)))), 1.0)


def as_if_even(comm, gradient, samples):
    """Wrong: weighs rightly, but divides by the number of ranks times the most samples."""
    most = max(int(n) for n in allgather(comm, np.array(samples)))
    return allreduce(comm, gradient * samples) / max(comm.size * most, 1)


def only_the_first_hears(comm, gradient, samples):
    """Wrong: the other ranks keep what is theirs."""
    mean = weighted_before(comm, gradient, samples)
    return gradient.copy() if comm.rank else mean


def all_but_the_first_hear(comm, gradient, samples):
    """Wrong: rank 0 keeps what is its own."""
    mean = weighted_before(comm, gradient, samples)
    return mean if comm.rank else gradient.copy()


def zero_over_zero(comm, gradient, samples):
    """Wrong: where nobody has samples there is no number."""
    mean, count = weighted_before(comm, gradient, samples), allreduce(comm, np.array(float(samples)))
    return mean if count else np.full_like(mean, np.nan)


# 3. Tied weights


def told_by_the_first(comm, weight, gradient, lr, holders):
    """Right: the first holder adds up and tells the others."""
    first = holders[0]
    if comm.rank not in holders:
        return None
    if comm.rank != first:
        comm.send(gradient, first)
        return weight - lr * comm.recv(first)
    total = gradient + sum(comm.recv(rank) for rank in holders[1:])
    for rank in holders[1:]:
        comm.send(total, rank)
    return weight - lr * total


def among_all(comm, weight, gradient, lr, holders):
    """Right: all ranks hear of all gradients."""
    gradients = allgather(comm, np.zeros(0) if gradient is None else gradient)
    return None if weight is None else weight - lr * np.sum([gradients[rank] for rank in holders], axis=0)


def each_its_own(comm, weight, gradient, lr, holders):
    """Wrong: every copy goes its own way."""
    return None if weight is None else weight - lr * gradient


def mean_of_uses(comm, weight, gradient, lr, holders):
    """Wrong: a mean, as if the holders were replicas."""
    return told_by_the_first(comm, weight, gradient, lr / len(holders), holders)


def first_and_last(comm, weight, gradient, lr, holders):
    """Wrong: as if there were never a third use."""
    result = told_by_the_first(comm, weight, gradient, lr, holders[:1] + holders[1:][-1:])
    return weight if comm.rank in holders[1:-1] else result


def first_left_behind(comm, weight, gradient, lr, holders):
    """Wrong: the first tells the sum and forgets its own copy."""
    result = told_by_the_first(comm, weight, gradient, lr, holders)
    return weight.copy() if comm.rank == holders[0] else result


def told_to_all(comm, weight, gradient, lr, holders):
    """Wrong: who holds no copy gets the step."""
    gradients = allgather(comm, np.zeros(0) if gradient is None else gradient)
    step = lr * np.sum([gradients[rank] for rank in holders], axis=0)
    return -step if weight is None else weight - step


# 5. Sparse sums


def dense_sum(comm, indices, values, size):
    """Right: sends everything."""
    mine = np.zeros(size)
    mine[indices] = values
    return allreduce(comm, mine)


def all_at_once(comm, indices, values, size):
    """Right: entries that meet are added by NumPy."""
    total = np.zeros(size)
    np.add.at(total, np.concatenate(allgather(comm, indices)), np.concatenate(allgather(comm, values)))
    return total


def neighbours_indices(comm, indices, values, size):
    """Wrong: the values of each rank at the indices of the next."""
    places, total = allgather(comm, indices), np.zeros(size)
    for i, theirs in zip(places[1:] + places[:1], allgather(comm, values), strict=True):
        total[i] += theirs
    return total


def once_each(comm, indices, values, size):
    """Wrong: the famous ``total[indices] += values``, which counts an index once."""
    total = np.zeros(size)
    total[np.concatenate(allgather(comm, indices))] += np.concatenate(allgather(comm, values))
    return total


def only_on_the_first(comm, indices, values, size):
    """Wrong: the other ranks have their own entries alone."""
    total = dense_sum(comm, indices, values, size)
    if comm.rank:
        total = np.zeros(size)
        total[indices] = values
    return total


def all_but_on_the_first(comm, indices, values, size):
    """Wrong: rank 0 has its own entries alone."""
    total = dense_sum(comm, indices, values, size)
    if comm.rank == 0:
        total = np.zeros(size)
        total[indices] = values
    return total


RIGHT = {
    1: (weighted_before, by_the_first_rank),
    3: (told_by_the_first, among_all),
    5: (dense_sum, all_at_once),
}
WRONG = {
    1: (
        *(starter.mean_gradient, mean_of_those_with_samples, as_if_even),
        *(only_the_first_hears, all_but_the_first_hear, zero_over_zero),
    ),
    3: (
        *(starter.update_tied, each_its_own, mean_of_uses, first_and_last),
        *(first_left_behind, told_to_all),
    ),
    5: (*(starter.sparse_sum, neighbours_indices, once_each), *(only_on_the_first, all_but_on_the_first)),
}
