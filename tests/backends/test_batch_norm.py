"""Laws of backends/consistency.py and backends/data_parallel/step_summary.py: synchronized batch-norm is
the whole batch's, by ranks it is a serial one over groups.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.comm import run_ranks
from backends.comm.mailboxes import Deadlock
from backends.consistency import synchronize_batch_norms
from backends.data_parallel import DataParallel
from backends.data_parallel.step_summary import StepSummary
from backends.laws import trains_like_serial
from minigrad import Tape, Tensor, nn, ops
from minigrad.data import Batch, shares
from minigrad.serial import Serial
from minigrad.traits import Traits
from minigrad.work import forward_backward_pass
from tests.backends.comm.sending_laws import messages_are
from tests.bugs.mutant import mutant


def network(norm: Callable[..., nn.Module] = nn.BatchNorm):
    """Batch-norm over images and over features, with layers before, between and after."""

    def build(rng):
        return nn.Sequential(
            nn.Conv2d(1, 3, 3, padding=1, rng=rng),
            norm(3),
            nn.LeakyReLU(),
            nn.Flatten(),
            nn.Linear(18, 4, rng=rng),
            norm(4, momentum=0.3),
            nn.LeakyReLU(),
            nn.Linear(4, 3, rng=rng),
        )

    return build


def batches_of(sizes):
    """Samples far from 0, where squares cancel."""
    rng = np.random.default_rng(0)
    return [Batch(rng.normal(3, 2, (n, 1, 2, 3)), rng.integers(0, 3, n)) for n in sizes]


def synchronized(comm):
    return DataParallel(comm, batch_norm="synchronized")


def law(ranks, strategy, sizes, build, **settings):
    batches = batches_of(sizes)
    run_ranks(
        ranks, lambda comm: trains_like_serial(strategy, comm, build, ops.cross_entropy, batches, **settings)
    )


# In front of a batch-norm the gradients of biases are 0, of one sample all of them are.
SIZES = st.lists(st.integers(1, 13), min_size=1, max_size=3)


@given(ranks=st.integers(1, 6), sizes=SIZES)
def test_synchronized_it_trains_like_serial(ranks, sizes):
    law(ranks, synchronized, sizes, network())


@given(ranks=st.integers(1, 6), size=st.integers(6, 13))
def test_synchronized_it_trains_like_serial_in_single_precision(ranks, size):
    law(ranks, synchronized, [size, size], network(), dtype=np.float32)


@given(ranks=st.integers(1, 6), sizes=SIZES)
def test_by_ranks_it_trains_like_serial_over_groups(ranks, sizes):
    groups = network(partial(nn.GhostBatchNorm, groups=ranks))
    law(ranks, DataParallel, sizes, network(), oracle=groups)


def test_by_ranks_it_does_not_train_like_serial():
    with pytest.raises(AssertionError, match="of its scale on rank"):
        law(2, DataParallel, [8], network())


class Interleaved(Serial):
    """Micro-batch i is what the ranks' micro-batches number i hold together."""

    def __init__(self, ranks, micro_batches):
        super().__init__(micro_batches)
        self.ranks = ranks

    def shard(self, batch):
        rows = np.arange(len(batch)).reshape(self.ranks, self.micro_batches, -1)
        return batch[rows.swapaxes(0, 1).reshape(-1)]


def test_each_micro_batch_is_normalised_over_all_ranks():
    strategy = partial(DataParallel, batch_norm="synchronized", micro_batches=2)
    law(3, strategy, [12, 18], network(), serial=Interleaved(3, 2))


def test_only_synchronized_batch_norm_communicates_in_forward():
    def work(comm):
        return [make(comm).traits.communicates_in_forward for make in (DataParallel, synchronized)]

    assert run_ranks(2, work) == [[False, True]] * 2


@pytest.mark.parametrize("ranks", range(1, 7))
@pytest.mark.parametrize("samples", [13, 3])
def test_each_batch_norm_sends_one_all_gather_a_pass(ranks, samples):
    """p - 1 messages each: forward 2 C + 1 numbers, backward 2 C; for C = 3 and C = 4."""
    batch = batches_of([samples])[0]

    def work(comm):
        model = network()(np.random.default_rng(0)).to(dtype=np.float64)
        mine = batch[shares(samples, ranks)[comm.rank]]

        def forward(comm):
            synchronize_batch_norms(model, comm)
            with Tape() as tape:
                return tape, model(Tensor(mine.x))

        def both(comm):
            tape, out = forward(comm)
            tape.backward(out, np.ones(out.shape))

        def in_eval_mode(comm):
            synchronize_batch_norms(model, comm)
            model.eval()(Tensor(mine.x))

        n = 8 * (ranks - 1)
        messages_are(forward, comm, 2 * (ranks - 1), n * (7 + 9))
        messages_are(both, comm, 4 * (ranks - 1), n * (7 + 9 + 6 + 8))
        messages_are(in_eval_mode, comm, 0, 0)

    run_ranks(ranks, work)


# Seeded bugs


def broken(*changes):
    """A batch-norm whose op has each (right, wrong) piece of its text replaced, in its readable form."""
    module = mutant("minigrad.ops.batch_norm", *changes)
    batch_norm = module.batch_norm

    class Broken(nn.BatchNorm):
        def normalize(self, x, observe):
            return batch_norm(x, self.weight, self.bias, eps=self.eps, observe=observe, gather=self.gather)

    return Broken


class MovesTwice(nn.BatchNorm):
    """Moves the running statistics in every pass, in one that is repeated too."""

    def observe(self, mean, var, count):
        super().observe(mean, var, count)
        super().observe(mean, var, count)


class RunsOnTheBiasedVariance(nn.BatchNorm):
    def observe(self, mean, var, count):
        self.move(mean, var)


EXCHANGE = "        if gather is not None:\n            total, along = xp.sum("
SUMS = "        return total, scale * along, d\n"
BUGS = {
    "this rank's count": broken(("n, mean, squares = merged(", "_, mean, squares = merged(")),
    "the mean of means": broken(("(counts * means).sum(axis=0) / max(n, 1)", "means.mean(axis=0)")),
    "the variance of the means is dropped": broken(("squares + counts * (means - mean) ** 2", "squares")),
    "the variance of the means, unweighted": broken(("counts * (means - mean) ** 2", "(means - mean) ** 2")),
    "deviations from this rank's mean": broken(
        ("n, mean, squares = merged(", "n, _, squares = merged(")
    ),
    "sums of g not exchanged": broken((EXCHANGE, "        if False:\n            total, along = xp.sum(")),
    "sums of g exchanged for the weights too": broken(
        (SUMS, "        return (*xp.sum(xp.stack((gather or (lambda a: [a]))("
         "xp.stack([total, scale * along]))), axis=0), d)\n"),
        (EXCHANGE, "        if False:\n            total, along = xp.sum("),
    ),
    "running variance by this rank's count": broken(
        ("observe(mean, var, n)", "observe(mean, var, x.size // x.shape[1])")
    ),
    "running statistics moved twice": MovesTwice,
    "running variance biased": RunsOnTheBiasedVariance,
}  # fmt: skip


def test_without_a_bug_the_copy_keeps_the_law():
    law(3, synchronized, [8, 7], network(broken()), oracle=network())


@pytest.mark.parametrize("bug", BUGS)
def test_the_law_catches(bug):
    with pytest.raises(AssertionError, match="of its scale on rank"):
        law(3, synchronized, [8, 7], network(BUGS[bug]), oracle=network())


class StaysAwayWithoutSamples(DataParallel):
    def place(self, model):
        model = super().place(model)
        self.traits = Traits(communicates_in_forward=False)
        return model


def test_a_rank_without_samples_that_stays_away_is_waited_for():
    with pytest.raises(Deadlock):
        law(4, partial(StaysAwayWithoutSamples, batch_norm="synchronized"), [3], network())


class KeepsItsStatistics(DataParallel):
    """Every rank ends with the running statistics of its own samples."""

    def place(self, model):
        model = super().place(model)
        self.step_summary = StepSummary(model, self.rank, self.size, statistics=False)
        return model


class MeanOfStatistics(DataParallel):
    """Running statistics are averaged without weights."""

    def forward_backward(self, work, inner=forward_backward_pass):
        loss = super().forward_backward(work, inner)
        self.summary.batch_fraction += 1 / self.size - work.loss_weight
        return loss


@pytest.mark.parametrize("bug", [KeepsItsStatistics, MeanOfStatistics])
def test_the_law_of_groups_catches(bug):
    groups = network(partial(nn.GhostBatchNorm, groups=3))
    with pytest.raises(AssertionError, match="running_"):
        law(3, bug, [11, 7], network(), oracle=groups)
