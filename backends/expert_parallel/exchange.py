"""Tokens travel to the ranks of their experts and back, by an all-to-all each way.

Lecture section: data and model parallelism together. Lesson: 18_experts. Backward is the same two
all-to-alls, of gradients.
"""

from __future__ import annotations

import numpy as np

from minigrad import ops
from minigrad.data import shares
from minigrad.device import array_module
from minigrad.nn.experts import Transform
from minigrad.tensor import Tensor

from ..comm import differentiable
from ..comm.collectives import alltoall
from ..comm.communicator import Communicator


def exchange(x: Tensor, counts: list[int], experts: Transform, *, comm: Communicator) -> Tensor:
    """What the experts of all ranks make of this rank's rows x (n, width).

    The first ``counts[0]`` rows are for expert 0, and so on. Rank r has the r-th share of the experts, and
    ``experts`` is what this rank's make of rows. Only rows that are there travel, so messages are uneven, and
    perhaps empty (Lepikhin et al. 2020, GShard, section 3). All ranks call.
    """
    numbers, cuts = np.array(counts, np.int64), shares(len(counts), comm.size)
    parts = [numbers[cut] for cut in cuts]
    arriving = np.stack(alltoall(comm, parts))  # by sender, then by this rank's expert
    rows = differentiable.all_to_all(x, comm=comm, sizes=[int(part.sum()) for part in parts])
    senders, own = arriving.shape
    expert_of = np.repeat(np.tile(np.arange(own), senders), arriving.reshape(-1))
    order = np.argsort(expert_of, kind="stable")  # by expert, then by sender
    places = np.argsort(order, kind="stable")  # the inverse permutation
    xp = array_module(x.data)
    y = experts(ops.embedding(rows, xp.asarray(order)), arriving.sum(0).tolist())
    y = ops.embedding(y, xp.asarray(places))  # in the order of arrival
    return differentiable.all_to_all(y, comm=comm, sizes=arriving.sum(1).tolist())
