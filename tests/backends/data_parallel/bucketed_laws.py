"""Laws of backends/data_parallel/bucketed.py: ranks that are processes, and models with branches."""

from functools import cached_property, partial

import numpy as np

from backends.comm import WithAllreduce, run_ranks
from backends.comm.collectives import naive_allreduce
from backends.comm.trace import Traced
from backends.data_parallel import DataParallel
from backends.data_parallel.bucketed import Bucketed
from minigrad import nn, ops
from tests.nets import small_images_of as batches_of


class Branching(nn.Module):
    """Which layers run, and in which order, depends on the samples: each rank announces in its own way."""

    def __init__(self, rng):
        self.first = nn.Linear(6, 4, rng=rng)
        self.left, self.right = nn.Linear(4, 4, rng=rng), nn.Linear(4, 4, rng=rng)
        self.sometimes = nn.Linear(4, 4, rng=rng)
        self.last = nn.Linear(4, 3, rng=rng)

    def forward(self, x):
        x = x.reshape(-1, 6)
        h = ops.tanh(self.first(x))
        if x.data.sum() > 0:
            left, right = self.left(h), self.right(h)
        else:
            right, left = self.right(h), self.left(h)
        total = ops.tanh(left) + ops.tanh(right)
        chosen = (x.data[:, :1] > 1).astype(x.dtype)
        if chosen.any():
            total = total + ops.tanh(self.sometimes(h)) * chosen
        return self.last(total)


def one_size(nbytes, **settings):
    return partial(Bucketed, bucket_bytes=nbytes, first_bucket_bytes=nbytes, **settings)


class Processes(WithAllreduce):
    """Ranks with an all-reduce of their own, as MPI's processes have it, on the machines ``nodes``."""

    def __init__(self, comm, nodes):
        super().__init__(comm, naive_allreduce)
        self.machines = nodes

    @cached_property
    def nodes(self):
        return self.machines


def processes_of_one_machine_do_what_the_replicated_form_does(nodes):
    """Processes on several machines sum during backward; both have the replicated form's bits."""

    def work(comm):
        runs = []
        for strategy in (DataParallel, one_size(100)):
            traced = Traced(Processes(comm, nodes))
            backend = strategy(traced)
            model = backend.place(Branching(np.random.default_rng(0)).to(dtype=np.float64))
            start = len(traced.record.spans)
            backend.step(model, batches_of([7])[0], ops.cross_entropy)
            calls = [(span.what, span.bytes) for span in traced.record.spans[start:]]
            runs.append((calls, [p.grad for p in model.parameters()]))
        (calls, grads), (bucketed_calls, bucketed_grads) = runs
        one_machine = len(set(nodes)) == 1
        assert (calls == bucketed_calls) == one_machine, f"on machines {nodes} a step calls {bucketed_calls}"
        assert ("start_allreduce" in dict(bucketed_calls)) != one_machine
        for g, bucketed in zip(grads, bucketed_grads, strict=True):
            np.testing.assert_array_equal(g, bucketed)

    run_ranks(len(nodes), work)
