"""Laws of backends/data_parallel/shared_memory.py: one copy of the weights, updated by all ranks,
trains the same, to the last bit.
"""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from minigrad_course.machines.virtual_cluster import VirtualCluster

from backends.comm import run_ranks
from backends.comm.collectives import naive_allreduce
from backends.comm.trace import Traced
from backends.consistency import trained_parameters
from backends.data_parallel import DataParallel, shared_memory
from backends.data_parallel.bucket import Bucket
from backends.data_parallel.flat import FlatLayout
from backends.data_parallel.shared_memory import SharedMemoryDataParallel
from backends.laws import trains_like_serial
from minigrad import nn, ops, optim
from tests.backends.strict import Strict
from tests.nets import Forked, convolutional, grouped, odd
from tests.nets import small_images_of as batches_of

OPTIMIZERS = {
    "momentum": lambda p: optim.SGD(p, 0.1, momentum=0.9),
    "nesterov": lambda p: optim.SGD(p, 0.1, momentum=0.8, nesterov=True, weight_decay=0.01),
    "adam": lambda p: optim.Adam(p, 0.01, weight_decay=0.01),
    "clipped": lambda p: optim.SGD(p, 0.1, momentum=0.9).clipped(0.05),
    "LARS": lambda p: optim.LARS(p, 0.1, momentum=0.9, weight_decay=0.01),
    "groups": lambda p: grouped(p).clipped(0.05),
}
SIZES = st.lists(st.integers(1, 13), min_size=1, max_size=3)
HOW = st.sampled_from([{}, {"rendezvous": True}, {"seed": 1}, {"seed": 2}, {"seed": 3}])


@pytest.fixture(params=[3, shared_memory.BLOCK], ids=["tiny blocks", "one block"])
def blocks(request, monkeypatch):
    """Small models in many blocks, as large ones are."""
    monkeypatch.setattr(shared_memory, "BLOCK", request.param)


def where(x):
    """The address of an array's first element."""
    return x.__array_interface__["data"][0]


def law(strategy, ranks, sizes, build: Callable[..., nn.Module] = Forked, how=None, **settings):
    batches = batches_of(sizes)
    run_ranks(
        ranks,
        lambda comm: trains_like_serial(strategy, comm, build, ops.cross_entropy, batches, **settings),
        **(how or {}),
    )


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("build", [Forked, convolutional, odd])
@pytest.mark.parametrize("name", OPTIMIZERS)
@settings(max_examples=settings().max_examples // 4)  # of 30 cases
@given(ranks=st.integers(1, 6), sizes=SIZES, how=HOW)
def test_trains_like_serial(build, name, ranks, sizes, how):
    law(SharedMemoryDataParallel, ranks, sizes, build, how, optimizer=OPTIMIZERS[name])


@pytest.mark.usefixtures("blocks")
@given(ranks=st.integers(1, 6), size=st.integers(1, 13), name=st.sampled_from(["momentum", "clipped"]))
def test_trains_like_serial_in_single_precision(ranks, size, name):
    law(SharedMemoryDataParallel, ranks, [size, size], dtype=np.float32, optimizer=OPTIMIZERS[name])


@given(ranks=st.integers(1, 6), k=st.integers(1, 4), sizes=SIZES, how=HOW)
def test_micro_batches_train_like_serial(ranks, k, sizes, how):
    law(lambda comm: SharedMemoryDataParallel(comm, micro_batches=k), ranks, sizes, odd, how)


@pytest.mark.parametrize("batch_norm", ["ranks", "synchronized"])
@given(ranks=st.integers(1, 4), size=st.integers(4, 13))
def test_with_batch_norm(batch_norm, ranks, size):
    def normalised(rng):  # batch-norm takes a bias before it away
        first = nn.Linear(6, 4, rng=rng, bias=False)
        return nn.Sequential(nn.Flatten(), first, nn.BatchNorm(4), nn.Tanh(), nn.Linear(4, 3, rng=rng))

    def strategy(comm):
        return SharedMemoryDataParallel(comm, batch_norm=batch_norm)

    law(strategy, 1 if batch_norm == "ranks" else ranks, [size, size + 1], normalised)


def trained_weights(backend, comm, sizes, optimizer, dtype=np.float64):
    """This rank's weights and the rank's losses after a step for each size."""
    model = backend.place(Forked(np.random.default_rng(comm.rank)).to(dtype=dtype))
    method, losses = optimizer(model.parameters()), []
    for batch in batches_of(sizes):
        method.zero_grad()
        losses.append(backend.step(model, batch, ops.cross_entropy))
        backend.update(model, method)
    return backend.state.full_parameters(model), losses


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("name", ["momentum", "nesterov", "adam"])
@settings(max_examples=settings().max_examples // 2)
@given(ranks=st.integers(1, 6), sizes=SIZES, dtype=st.sampled_from([np.float32, np.float64]), how=HOW)
def test_the_bits_are_those_of_the_naive_sum_on_every_rank(name, ranks, sizes, dtype, how):
    def both(comm):
        one = trained_weights(SharedMemoryDataParallel(comm), comm, sizes, OPTIMIZERS[name], dtype)
        naive = trained_weights(DataParallel(comm, naive_allreduce), comm, sizes, OPTIMIZERS[name], dtype)
        return one, naive

    for (actual, losses), (expected, wanted_losses) in run_ranks(ranks, both, **how):
        assert losses == wanted_losses
        for weight, w in expected.items():
            np.testing.assert_array_equal(actual[weight], w, weight)


@pytest.mark.usefixtures("blocks")
@given(ranks=st.integers(1, 6), data=st.data())
def test_every_element_is_in_one_block_of_one_rank_and_shares_are_even(ranks, data):
    layers = data.draw(st.lists(st.integers(1, 9), min_size=2, max_size=5))

    def work(comm):
        rng = np.random.default_rng(0)
        layer = [nn.Linear(a, b, rng=rng) for a, b in zip(layers, layers[1:], strict=False)]
        backend = SharedMemoryDataParallel(comm)
        flat = FlatLayout(trained_parameters(backend.place(nn.Sequential(*layer))))
        results = []
        for block in backend.blocks:
            first = (where(block.w) - where(flat.parameters[block.n].data)) // block.w.itemsize
            results += [(block.n, i) for i in range(first, first + block.w.size)]
            for rank, gradient in enumerate(block.gradients):
                whole = backend.gradients[rank][block.n]
                assert where(gradient) - where(whole) == first * whole.itemsize
        return results, [(n, i) for n, p in enumerate(flat.parameters) for i in range(p.size)]

    results = run_ranks(ranks, work)
    assert sorted(sum((share for share, _ in results), [])) == results[0][1]
    if ranks * shared_memory.BLOCK >= len(results[0][1]):
        sizes = [len(share) for share, _ in results]
        assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("name", ["momentum", "clipped"])
def test_a_step_sends_no_message_but_for_norms(name):
    def work(comm):
        backend = SharedMemoryDataParallel(traced := Traced(comm))
        model = backend.place(Forked(np.random.default_rng(0)))
        method, before = OPTIMIZERS[name](model.parameters()), traced.record.ledger.sent()
        for batch in batches_of([7, 2]):
            backend.step(model, batch, ops.cross_entropy)
            backend.update(model, method)
        sent = traced.record.ledger.sent()
        return sent.messages - before.messages, sent.bytes - before.bytes

    # Norms: of each parameter and its gradient, 8 bytes, by the naive all-reduce.
    n = len(Forked(np.random.default_rng(0)).parameters())
    assert run_ranks(3, work) == [(0, 0) if name == "momentum" else (2 * 2, 2 * 2 * 16 * n)] * 3


def test_a_parameter_that_the_optimizer_does_not_know_stays():
    def work(comm):
        backend = SharedMemoryDataParallel(comm)
        model = backend.place(Forked(np.random.default_rng(0)))
        *_, last = model.parameters()
        before = last.data.copy()
        method = optim.SGD([p for p in model.parameters() if p is not last], 0.1)
        backend.step(model, batches_of([7])[0], ops.cross_entropy)
        backend.update(model, method)
        np.testing.assert_array_equal(last.data, before)

    run_ranks(3, work)


def losses_of_steps_without_updates(strategy, ranks, seed):
    def work(comm):
        backend = strategy(comm)
        model = backend.place(Forked(np.random.default_rng(0)))
        return [backend.step(model, batch, ops.cross_entropy) for batch in batches_of(range(4, 9))]

    results = run_ranks(ranks, work, seed=seed)
    return all(losses == results[0] for losses in results)


@given(ranks=st.integers(1, 4), seed=st.integers(0, 50))
def test_ranks_agree_on_every_loss_however_far_ahead_one_is(ranks, seed):
    assert losses_of_steps_without_updates(SharedMemoryDataParallel, ranks, seed)


# Errors: what was given, what was needed, the way out.


@pytest.mark.parametrize("apart", [VirtualCluster(2).run, lambda fn: run_ranks(2, lambda c: fn(Strict(c)))])
def test_ranks_that_share_no_machine_are_refused(apart):
    with pytest.raises(ValueError, match="the 2 ranks do not share a machine.*replicated or sharded"):
        apart(lambda comm: SharedMemoryDataParallel(comm).place(Forked(np.random.default_rng(0))))


def test_weights_of_several_dtypes_are_refused():
    def mixed(rng):
        model = Forked(rng)
        model.last.to(dtype=np.float64)
        return model

    with pytest.raises(ValueError, match="one dtype, got float32, float64"):
        run_ranks(2, lambda comm: SharedMemoryDataParallel(comm).place(mixed(np.random.default_rng(0))))


# Seeded bugs. Thread ranks in seeded turns run one at a time, so what lacks a meeting goes wrong.


def without_meeting(memory):
    return memory._replace(barrier=lambda what: None)


class SumsBeforeAllHaveFinished(SharedMemoryDataParallel):
    def finish(self, model, loss):
        memory, self.memory = self.memory, without_meeting(self.memory)
        loss = super().finish(model, loss)
        self.memory = memory
        return loss


class GoesOnBeforeAllHaveUpdated(SharedMemoryDataParallel):
    def update(self, model, optimizer):
        memory, self.memory = self.memory, without_meeting(self.memory)
        super().update(model, optimizer)
        self.memory = memory


class SharesOverlap(SharedMemoryDataParallel):
    """The first element of each block is updated by two ranks where the block begins inside a parameter."""

    def cut_into_blocks(self, flat):
        for n, w, gradients in super().cut_into_blocks(flat):
            first = (where(w) - where(flat.parameters[n].data)) // w.itemsize
            some = slice(max(first - 1, 0), first + w.size)
            arrays = [flat.parameters[n].data, *(views[n] for views in self.gradients)]
            w, *gradients = (array.reshape(-1)[some] for array in arrays)
            yield shared_memory.Block(n, w, gradients)


class SkipsABlock(SharedMemoryDataParallel):
    def cut_into_blocks(self, flat):
        yield from list(super().cut_into_blocks(flat))[:-1]


class ForgetsARank(SharedMemoryDataParallel):
    def cut_into_blocks(self, flat):
        for n, w, gradients in super().cut_into_blocks(flat):
            yield shared_memory.Block(n, w, gradients[:-1])


class OldWhereNone(Bucket):
    def fill(self, parameters):
        super().fill([p for p in parameters if p.grad is not None])


class LeavesOldGradients(SharedMemoryDataParallel):
    """A rank without samples brings what it had in the step before."""

    def place(self, model):
        model = super().place(model)
        self.bucket = OldWhereNone(self.summary.parameters, self.bucket.message)
        return model


class OwnWeights(SharedMemoryDataParallel):
    """Each rank keeps a copy of the weights, and updates its share of that."""

    def place(self, model):
        model = super().place(model)
        for p in self.summary.parameters:
            p.data = p.data.copy()
        self.blocks = list(self.cut_into_blocks(FlatLayout(self.summary.parameters)))
        return model


class NormsOfItsShare(SharedMemoryDataParallel):
    """Clips by the norm of its own share."""

    def update(self, model, optimizer):
        optimizer.step(self.parts(optimizer))
        self.memory.barrier("to update")


class UpdatesWhatNobodyReached(SharedMemoryDataParallel):
    def finish(self, model, loss):
        loss = super().finish(model, loss)
        self.reached = [True] * len(self.reached)
        return loss


class OneReport(SharedMemoryDataParallel):
    """The report of a step is written over that of the step before, which some rank may not have read."""

    def finish(self, model, loss):
        self.turn = 0
        return super().finish(model, loss)


BUGS = [
    SumsBeforeAllHaveFinished,
    GoesOnBeforeAllHaveUpdated,
    SharesOverlap,
    SkipsABlock,
    ForgetsARank,
    LeavesOldGradients,
    OwnWeights,
    NormsOfItsShare,
    UpdatesWhatNobodyReached,
]


@pytest.mark.parametrize("bug", BUGS)
def test_the_law_catches(bug, monkeypatch):
    monkeypatch.setattr(shared_memory, "BLOCK", 3)
    clipped = lambda p: optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.01).clipped(0.05)  # noqa: E731
    with pytest.raises((AssertionError, RuntimeError), match="of its scale on rank|ran backward"):
        for seed in range(5):
            law(bug, 3, [7, 2, 5], how={"seed": seed}, optimizer=clipped)


def test_a_report_that_is_overwritten_is_seen():
    """By a wrong loss, or by the checksum of the batch in it."""
    with pytest.raises((AssertionError, ValueError), match="never once|another batch than rank 0"):
        assert all(losses_of_steps_without_updates(OneReport, 3, seed) for seed in range(30)), "never once"
