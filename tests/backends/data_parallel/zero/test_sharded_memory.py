"""Laws of backends/data_parallel/zero/gathered_weights.py, flat_parameter.py and sharded.py: every array
that the ranks hold is weighed; at the end of backward it is each stage's closed form.
"""

import ctypes
import gc
import mmap
import sys
import tracemalloc
from functools import partial

import numpy as np
import pytest

from backends.comm import run_ranks
from backends.comm.collectives import barrier
from backends.data_parallel import DataParallel
from backends.data_parallel.zero.flat_parameter import freeable_array
from backends.data_parallel.zero.gathered_weights import GatheredWeights
from backends.data_parallel.zero.sharded import Sharded
from minigrad import nn, ops, optim
from minigrad.data import Batch
from tests.backends.data_parallel.zero.sharded_laws import formula

OPTIMIZERS = {
    "sgd": (0, lambda ps: optim.SGD(ps, 0.1)),
    "momentum": (4, lambda ps: optim.SGD(ps, 0.1, momentum=0.9)),
    "adam": (8, lambda ps: optim.Adam(ps, 0.01)),
}


def net(rng):
    """37,376 parameters in three layers whose sizes little divides."""
    return nn.Sequential(
        nn.Linear(67, 131, rng=rng),
        nn.Tanh(),
        nn.Linear(131, 199, rng=rng),
        nn.Tanh(),
        nn.Linear(199, 11, rng=rng),
    )


@pytest.fixture(scope="module", autouse=True)
def earlier_objects():
    """Objects of earlier tests are left out of the searches for garbage: each training makes four."""
    gc.collect()
    gc.freeze()


def array_bytes():
    """Bytes of all NumPy arrays that were made since tracing began and still exist."""
    gc.collect()
    only_arrays = tracemalloc.DomainFilter(True, np.lib.tracemalloc_domain)
    traces = tracemalloc.take_snapshot().filter_traces([only_arrays]).traces
    return sum(trace.size for trace in traces)


def weighed(strategy, ranks, make_optimizer):
    """Bytes of all ranks' arrays in the second step, after backward and after ``finish``."""
    batch = Batch(np.ones((2 * ranks, 67), np.float32), np.ones((2 * ranks, 11), np.float32))
    results = []

    def train(comm):
        def weigh():
            barrier(comm)
            if comm.rank == 0:
                results.append(array_bytes())
            barrier(comm)

        backend = strategy(comm)
        finish = backend.finish
        backend.finish = lambda model, loss: (weigh(), finish(model, loss))[1]
        model = backend.place(net(np.random.default_rng(0)))
        method = make_optimizer(model.parameters())
        for _ in range(2):
            method.zero_grad()
            backend.step(model, batch, ops.mse)
            weigh()
            backend.update(model, method)

    tracemalloc.start()
    try:
        run_ranks(ranks, train)
    finally:
        tracemalloc.stop()
    return results[-2:]


PADDING = (
    100  # bytes: at most N - 1 elements for each of a few units, and a NaN for each parameter given back
)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_bytes_per_rank_are_the_closed_form(stage, ranks, optimizer):
    k, make_optimizer = OPTIMIZERS[optimizer]

    def strategy(comm):
        return Sharded(comm, stage=stage, bucket_bytes=1 << 16)

    after_backward, after_finish = (x / ranks for x in weighed(strategy, ranks, make_optimizer))
    assert 0 <= after_backward - 37_376 * formula(stage, ranks, k) < PADDING
    # From then on nobody needs whole gradients: a rank in stage 1 holds what it does in stage 2.
    assert 0 <= after_finish - 37_376 * formula(max(stage, 2), ranks, k) < PADDING


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_replicated_holds_everything_on_every_rank(optimizer):
    k, make_optimizer = OPTIMIZERS[optimizer]
    after_backward, _ = weighed(DataParallel, 2, make_optimizer)
    assert after_backward / 2 >= 37_376 * formula(0, 2, k)


class KeepsGradients(Sharded):
    """Reduces in time, and forgets to forget."""

    def on_grad(self, parameter):
        gradients = (
            [(p, p.grad) for p in self.flat_of[parameter].parameters] if parameter in self.flat_of else []
        )
        super().on_grad(parameter)
        self.latest = [*getattr(self, "latest", [])[-6:], *gradients]


class StateForAll(Sharded):
    """Every rank updates everything: right, and as large as before."""

    def update(self, model, optimizer):
        for p, g in zip(model.parameters(), self.state.full_gradients(model).values(), strict=True):
            p.grad = g
        optimizer.step(total=partial(self.state.total_squares, model, optimizer))
        optimizer.zero_grad()


@pytest.mark.parametrize("bug", [KeepsGradients, StateForAll])
def test_the_scales_catch(bug):
    k, make_optimizer = OPTIMIZERS["momentum"]
    after_backward, _ = weighed(lambda comm: bug(comm, stage=2, bucket_bytes=1 << 16), 2, make_optimizer)
    assert after_backward / 2 - 37_376 * formula(2, 2, k) > PADDING


# While a step goes on, and what the system says of memory that was given back.


class Counting(GatheredWeights):
    def __init__(self, backend, prefetch):
        super().__init__(prefetch=prefetch)
        self.backend = backend

    def unshard(self, flats, *, in_step=True):
        super().unshard(flats, in_step=in_step)
        sizes = (
            f.unsharded.nbytes * (bool(f.ref_count) + bool(f.pending_all_gather)) for f in self.backend.flats
        )
        self.backend.most_weights = max(self.backend.most_weights, sum(sizes))


class Watched(Sharded):
    """Notes the most bytes of whole weights, and of whole gradients, that it held at once."""

    most_weights = most_gradients = 0

    def __init__(self, comm, **settings):
        super().__init__(comm, **settings)
        if self.stage == 3:
            self.weights = Counting(self, self.prefetch if self.overlap else 0)

    def on_grad(self, parameter):
        grads = (p.grad for unit in self.flats for p in unit.parameters if p.grad is not None)
        self.most_gradients = max(self.most_gradients, sum(g.nbytes for g in grads))
        super().on_grad(parameter)


@pytest.mark.parametrize(
    ("stage", "overlap", "prefetch"), [(2, False, 1), (3, False, 1), (3, True, 0), (3, True, 1), (3, True, 2)]
)
def test_at_no_time_more_than_the_largest_unit_is_whole(stage, overlap, prefetch):
    batch = Batch(np.ones((4, 67), np.float32), np.ones((4, 11), np.float32))

    def train(comm):
        backend = Watched(comm, stage=stage, overlap=overlap, prefetch=prefetch, bucket_bytes=1)
        model = backend.place(net(np.random.default_rng(0)))
        method = OPTIMIZERS["momentum"][1](model.parameters())
        for _ in range(2):
            backend.step(model, batch, ops.mse)
            backend.update(model, method)
        if stage == 3 and sys.platform == "linux":
            assert sum(map(resident, (unit.unsharded for unit in backend.flats))) == 0
        sizes = sorted(unit.unsharded.nbytes for unit in backend.flats)
        return backend.most_weights, backend.most_gradients, sizes

    for weights, gradients, sizes in run_ranks(3, train):
        assert gradients <= sizes[-1]
        assert weights == (0 if stage == 2 else sum(sizes[-1 - prefetch :]) if overlap else sizes[-1])


def resident(x):
    """Bytes of physical memory behind ``x``, which begins a page, as the system counts them."""
    pages = (ctypes.c_ubyte * -(-x.nbytes // mmap.PAGESIZE))()
    start = ctypes.c_void_p(x.__array_interface__["data"][0])
    assert ctypes.CDLL(None, use_errno=True).mincore(start, ctypes.c_size_t(x.nbytes), pages) == 0
    return sum(page & 1 for page in pages) * mmap.PAGESIZE


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the memory is kept")
def test_memory_that_is_given_back_is_given_back():
    x, give_back = freeable_array(np.zeros(1), 1 << 18)
    view = x[100:200].reshape(10, 10)
    assert resident(x) == 0
    for _ in range(2):
        x[...] = 1.0
        assert resident(x) == x.nbytes
        give_back()
        assert resident(x) == 0
        assert not view.any()
