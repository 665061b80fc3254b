"""Laws of backends/data_parallel/data_parallel.py and synchronous.py: exact limits, accumulation,
optimizers and message counts of the all-reduce of everything.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.comm import run_ranks
from backends.comm.collectives import naive_allreduce, ring_allreduce
from backends.data_parallel import DataParallel
from backends.laws import Build, trains_like_serial
from minigrad import ops, optim
from minigrad.data import Batch, shares
from minigrad.serial import Serial
from minigrad.work import Work, forward_backward_pass
from tests.backends.comm.sending_laws import messages_are
from tests.nets import Forked, convolutional, grouped, odd
from tests.nets import normalised_mlp as normalised
from tests.nets import small_images_of as batches_of

OPTIMIZERS = {
    "momentum": lambda p: optim.SGD(p, 0.1, momentum=0.9),
    "nesterov": lambda p: optim.SGD(p, 0.1, momentum=0.8, nesterov=True, weight_decay=0.01),
    "adam": lambda p: optim.Adam(p, 0.01, weight_decay=0.01),
    "adamw": lambda p: optim.AdamW(p, 0.01, weight_decay=0.01),
    "adagrad": lambda p: optim.Adagrad(p, 0.01),
    "clipped": lambda p: optim.SGD(p, 0.1, momentum=0.9).clipped(0.05),
    "groups": lambda p: grouped(p).clipped(0.05),
}


def law(strategy, ranks, sizes, build: Build = Forked, **settings):
    batches = batches_of(sizes)
    run_ranks(
        ranks, lambda comm: trains_like_serial(strategy, comm, build, ops.cross_entropy, batches, **settings)
    )


@pytest.mark.parametrize("name", OPTIMIZERS)
@settings(max_examples=settings().max_examples // 2)
@given(ranks=st.integers(1, 6), sizes=st.lists(st.integers(1, 13), min_size=1, max_size=3))
def test_trains_like_serial_with(name, ranks, sizes):
    law(DataParallel, ranks, sizes, odd, optimizer=OPTIMIZERS[name])


@pytest.mark.parametrize("build", [Forked, convolutional, odd])
@given(
    ranks=st.integers(1, 6), k=st.integers(1, 5), sizes=st.lists(st.integers(1, 17), min_size=1, max_size=2)
)
def test_accumulated_backwards_train_like_serial(build, ranks, k, sizes):
    law(lambda comm: DataParallel(comm, micro_batches=k), ranks, sizes, build)


@given(k=st.integers(1, 5), size=st.integers(1, 13))
def test_one_rank_is_serial_bitwise(k, size):
    strategy = lambda comm: DataParallel(comm, micro_batches=k)  # noqa: E731
    law(strategy, 1, [size, size], odd, serial=Serial(k), bound=0.0)


def test_two_ranks_are_serial_accumulation_bitwise():
    """Two terms have one order of addition: rank 0's gradient plus rank 1's."""
    law(lambda comm: DataParallel(comm, naive_allreduce), 2, [8, 6], Forked, serial=Serial(2), bound=0.0)


def sent(strategy, ranks, ring, steps=1):
    """Assert that ``steps`` steps send as many messages and bytes as so many ring all-reduces."""
    batch = batches_of([7])[0]

    def work(comm):
        backend = strategy(comm)
        model = backend.place(odd(np.random.default_rng(0)).to(dtype=np.float64))
        trained = sum(p.size for p in model.parameters() if p.requires_grad)
        tensors = sum(p.requires_grad for p in model.parameters())
        n = trained + 2 + ranks + tensors  # gradients; loss, share, backwards by rank, reached parameters
        chunks = [8 * (s.stop - s.start) for s in shares(n, ranks)]
        k = comm.rank
        nbytes = 2 * 8 * n - chunks[(k + 1) % ranks] - chunks[(k + 2) % ranks] if ranks > 1 else 0

        def step(traced):
            backend.comm = traced
            for _ in range(steps):
                backend.step(model, batch, ops.cross_entropy)

        messages_are(step, comm, ring * 2 * (ranks - 1), ring * nbytes)

    run_ranks(ranks, work)


@pytest.mark.parametrize("ranks", range(1, 7))
@pytest.mark.parametrize("k", [1, 3])
def test_a_step_sends_one_all_reduce_whatever_is_accumulated(ranks, k):
    sent(lambda comm: DataParallel(comm, ring_allreduce, micro_batches=k), ranks, ring=1)
    sent(lambda comm: DataParallel(comm, ring_allreduce, micro_batches=k), ranks, ring=3, steps=3)


# Seeded bugs


class OverwritesInsteadOfAccumulating(DataParallel):
    """Each micro-batch's gradient replaces that of the one before."""

    def forward_backward(self, work, inner=forward_backward_pass):
        loss = 0.0
        for part in work.split(self.micro_batches).values():
            for p in work.model.parameters():
                p.grad = None
            loss += inner(part)
        self.summary.count_backward(work.loss_weight)
        return loss


class MeanOverMicroBatches(DataParallel):
    """Weighs micro-batches alike, though their sizes differ."""

    def forward_backward(self, work, inner=forward_backward_pass):
        parts = work.split(self.micro_batches).values()
        self.summary.count_backward(work.loss_weight)
        return sum(inner(part._replace(loss_weight=work.loss_weight / len(parts))) for part in parts)


class ClipsEachRankAlone(DataParallel):
    """Clips before the sum instead of after it."""

    def finish(self, model, loss):
        for p in self.summary.parameters:
            if p.grad is not None and p.grad.any():
                p.grad = p.grad * min(1.0, 0.05 / float(np.linalg.norm(p.grad)))
        return super().finish(model, loss)


class UpdatesStatisticsTwice(DataParallel):
    """Runs forward twice, as a careless recomputation does."""

    def forward_backward(self, work, inner=forward_backward_pass):
        super().forward_backward(work._replace(loss_weight=0.0, on_grad=None), inner)
        self.summary.n_backwards, self.summary.batch_fraction = 0, 0.0
        return super().forward_backward(work, inner)


@pytest.mark.parametrize(
    ("bug", "ranks", "build"),
    [
        (lambda comm: OverwritesInsteadOfAccumulating(comm, micro_batches=3), 2, Forked),
        (lambda comm: MeanOverMicroBatches(comm, micro_batches=3), 2, Forked),
        (ClipsEachRankAlone, 3, odd),
        (UpdatesStatisticsTwice, 1, normalised),
    ],
)
def test_the_law_catches(bug, ranks, build):
    with pytest.raises(AssertionError, match="of its scale on rank"):
        law(bug, ranks, [11, 8], build, optimizer=OPTIMIZERS["clipped"])


def test_running_statistics_are_compared():
    law(DataParallel, 1, [11, 8], normalised)


def test_a_batch_without_samples_still_goes_through_forward_and_backward_where_ranks_meet():
    """Every gradient is zero, none is missing, and the loss counts nothing."""
    backend = Serial(2)
    for build in (convolutional, odd, normalised):
        model = build(np.random.default_rng(0)).to(dtype=np.float64)
        nothing = Batch(np.zeros((0, 1, 2, 3)), np.zeros(0, int))
        announced = []
        loss = backend.forward_backward(
            Work(model, nothing, ops.cross_entropy, 0.0, announced.append, keep_empty=True)
        )
        assert loss == 0.0
        trained = [p for p in model.parameters() if p.requires_grad]
        assert {id(p) for p in announced} == {id(p) for p in trained}
        assert all(p.grad is not None and not p.grad.any() for p in trained)
