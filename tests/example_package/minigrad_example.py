"""A strategy with a flag of its own, a schedule, a compressor and an all-reduce, each a few lines."""

import numpy as np

from backends.comm.collectives import allreduce, broadcast, gather
from backends.data_parallel.compression import Compressor
from backends.data_parallel.compression.compressor import ExchangeResult
from backends.pipeline import Backward, Forward
from minigrad.data import shares
from minigrad.declaration import Declaration, Flag
from minigrad.strategy import Strategy


class Groups(Declaration):
    """What a command line may ask of ``GroupedDataParallel``, and what a run reports of it."""

    def check_options(self, ranks, options):
        if options.get("groups", 2) < 1:
            raise ValueError(f"--groups must be at least 1, got {options['groups']}")

    def figures(self, backend):
        return {"gradient reductions": backend.reductions}


class GroupedDataParallel(Strategy):
    """Data parallelism that sums the gradients of ``groups`` groups of parameters, one all-reduce each."""

    declaration = Groups(
        {"groups": Flag(int, "number of groups that the gradients are summed in (default: 2)", "GROUPS")}
    )

    def __init__(self, comm, *, groups=2):
        self.comm, self.rank, self.size = comm, comm.rank, comm.size
        self.groups, self.reductions = groups, 0

    def place(self, model):
        for parameter in model.parameters():
            parameter.data[...] = broadcast(self.comm, parameter.data)
        return self.hold(model)

    def shard(self, batch):
        return batch[shares(len(batch), self.size)[self.rank]]

    def finish(self, model, loss):
        parameters = list(model.parameters())
        for share in shares(len(parameters), self.groups):
            if group := parameters[share]:
                gradients = [np.zeros_like(p.data) if p.grad is None else p.grad for p in group]
                total = allreduce(self.comm, np.concatenate([g.ravel() for g in gradients]))
                self.reductions += 1
                for p in group:
                    p.grad, total = total[: p.size].reshape(p.shape), total[p.size :]
        return float(allreduce(self.comm, np.array([loss]))[0])


def last_in_first_out(rank, ranks, micros, chunks):
    """All micro-batches forward, then all back, the last one first."""
    yield from map(Forward, range(micros))
    yield from map(Backward, reversed(range(micros)))


class Reversed(Compressor):
    """Every number is sent, the last one first: nothing is lost."""

    lossless = True

    def exchange(self, comm, v, figures, allreduce):
        return ExchangeResult(allreduce(comm, v[::-1].copy())[::-1], v, allreduce(comm, figures))


def star_allreduce(comm, x):
    """Rank 0 gathers all arrays and broadcasts their sum."""
    arrays = gather(comm, x)
    return broadcast(comm, np.sum(arrays, axis=0) if comm.rank == 0 else x)
