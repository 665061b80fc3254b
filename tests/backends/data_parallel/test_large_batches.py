"""Laws of backends/data_parallel/synchronous.py and data_parallel.py: what large batches need, LARS,
clipping and a corrected momentum, works on ranks as on one machine.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.comm import run_ranks
from backends.comm.collectives import naive_allreduce
from backends.data_parallel import DataParallel
from backends.laws import Build, trains_like_serial
from minigrad import Parameter, ops, optim
from minigrad.data import shares
from minigrad.lr_schedules import constant, scaled_lr, warm_up
from minigrad.optim import Optimizer, Part
from minigrad.strategy import Strategy
from minigrad.train import fit
from tests.nets import Forked, convolutional
from tests.nets import small_images_of as batches_of

OPTIMIZERS = {
    "lars": lambda p: optim.LARS(p, 1.0, trust=0.02, weight_decay=0.01),
    "lars, clipped": lambda p: optim.LARS(p, 1.0, trust=0.02).clipped(0.05),
    "heavy ball": lambda p: optim.HeavyBall(p, 0.1, weight_decay=0.01),
    "sgd, clipped": lambda p: optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.01).clipped(0.05),
    "adam, clipped": lambda p: optim.Adam(p, 0.01, weight_decay=0.01).clipped(0.05),
}


def law(strategy, ranks, sizes, build: Build = Forked, **settings):
    batches = batches_of(sizes)
    run_ranks(
        ranks, lambda comm: trains_like_serial(strategy, comm, build, ops.cross_entropy, batches, **settings)
    )


@pytest.mark.parametrize("name", OPTIMIZERS)
@settings(max_examples=settings().max_examples // 2)
@given(
    ranks=st.integers(1, 6),
    sizes=st.lists(st.integers(1, 13), min_size=1, max_size=3),
    build=st.sampled_from([Forked, convolutional]),
)
def test_ranks_train_like_serial_with(name, ranks, sizes, build):
    law(DataParallel, ranks, sizes, build, optimizer=OPTIMIZERS[name])


# Ranks that own only some elements of each parameter: norms are still those of whole parameters.

SHAPES = [(3, 4), (5,), (), (2, 3)]


def parts_train_as_the_whole(make, ranks, steps=3, total=naive_allreduce, limit=None):
    """The law: ranks that each pass their elements as ``parts`` leave together what one machine leaves."""
    rng = np.random.default_rng(0)
    starts = [rng.normal(size=shape) for shape in SHAPES]
    gradients = [[rng.normal(size=shape) for shape in SHAPES] for _ in range(steps)]
    for gs in gradients:
        gs[1] = None  # not reached

    def fresh() -> tuple[list[Parameter], Optimizer]:
        ws = [Parameter(w.copy()) for w in starts]
        return ws, make(ws) if limit is None else make(ws).clipped(limit)

    whole, optimizer = fresh()
    for gs in gradients:
        for w, g in zip(whole, gs, strict=True):
            w.grad = None if g is None else g.copy()
        optimizer.step()

    def work(comm):
        ws, optimizer = fresh()
        for gs in gradients:
            parts = []
            for n, (w, g) in enumerate(zip(ws, gs, strict=True)):
                mine = shares(w.size, comm.size)[comm.rank]
                some = None if g is None else g.reshape(-1)[mine].copy()
                parts.append(Part(n, w.data.reshape(-1)[mine], some))
            optimizer.step(parts, lambda x: total(comm, x))
        return [w.data.reshape(-1)[shares(w.size, comm.size)[comm.rank]] for w in ws]

    arrays = [np.concatenate(pieces) for pieces in zip(*run_ranks(ranks, work), strict=True)]
    for w, start, mine in zip(whole, starts, arrays, strict=True):
        np.testing.assert_allclose(mine, w.data.reshape(-1), rtol=1e-12, atol=1e-13)
        assert np.array_equal(w.data, start) == (w is whole[1])


@pytest.mark.parametrize("make", [*OPTIMIZERS.values()], ids=[*OPTIMIZERS])
@given(ranks=st.integers(1, 6), limit=st.none() | st.floats(0.1, 10))
def test_ranks_that_own_elements_train_as_the_whole(make, ranks, limit):
    parts_train_as_the_whole(make, ranks, limit=limit)


def test_the_corrected_momentum_follows_the_schedule_on_ranks_too():
    """Training with a warm-up: SGD on one machine, heavy ball on three ranks."""
    data = batches_of([24])[0]
    schedule = warm_up(constant(0.2, 12), 6, scaled_lr(0.2, 4, 8))

    def ends(make, backend):
        model = backend.place(Forked(np.random.default_rng(0)).to(dtype=np.float64))
        optimizer = make(model.parameters(), 0.1, momentum=0.9)
        fit(
            model,
            optimizer,
            ops.cross_entropy,
            data,
            backend=backend,
            epochs=4,
            batch_size=8,
            schedule=schedule,
        )
        return model.state_dict()

    expected = ends(optim.SGD, Strategy())
    for actual in run_ranks(3, lambda comm: ends(optim.HeavyBall, DataParallel(comm))):
        for name, w in expected.items():
            np.testing.assert_allclose(actual[name], w, rtol=1e-11, atol=1e-13)


def test_k_workers_with_b_samples_are_one_machine_with_kb():
    """Goyal et al. 2017: what the scaling rule compares is the batch, however it is spread."""
    law(DataParallel, 4, [32, 32], convolutional)


# Seeded bugs


class ClipsBeforeTheSum(DataParallel):
    """Every rank limits the norm of its own gradients."""

    def finish(self, model, loss):
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        norm = np.sqrt(sum(np.vdot(g, g) for g in gradients))
        for p in model.parameters():
            p.grad = None if p.grad is None else p.grad * min(1.0, 0.05 / norm)
        return super().finish(model, loss)


class UsesItsOwnNorms(DataParallel):
    """The rates are those of this rank's own gradients."""

    def finish(self, model, loss):
        own = [None if p.grad is None else p.grad.copy() for p in model.parameters()]
        loss = super().finish(model, loss)
        self.own = own
        return loss

    def update(self, model, optimizer):
        pairs = zip(model.parameters(), self.own, strict=True)
        parts = [Part(n, p.data, g) for n, (p, g) in enumerate(pairs)]
        rates = optimizer.rates(optimizer.squares(parts))
        optimizer.rates = lambda squares: rates
        super().update(model, optimizer)


@pytest.mark.parametrize(("bug", "name"), [(ClipsBeforeTheSum, "sgd, clipped"), (UsesItsOwnNorms, "lars")])
def test_the_law_catches(bug, name):
    with pytest.raises(AssertionError, match="of its scale on rank"):
        law(bug, 3, [11, 8], convolutional, optimizer=OPTIMIZERS[name])


def own_norms_only(comm, x):
    return x


def norms_summed_instead_of_squares(comm, x):
    return naive_allreduce(comm, np.sqrt(x)) ** 2


def the_mean_of_squares(comm, x):
    return naive_allreduce(comm, x) / comm.size


def one_norm_for_all(comm, x):
    return np.broadcast_to(naive_allreduce(comm, x).sum(axis=0), x.shape).copy()


PARTS_BUGS = [
    ("sgd, clipped", own_norms_only),
    ("sgd, clipped", norms_summed_instead_of_squares),
    ("sgd, clipped", the_mean_of_squares),  # LARS would not mind: it uses the ratio of two norms
    ("sgd, clipped", one_norm_for_all),
    ("lars", own_norms_only),
    ("lars", norms_summed_instead_of_squares),
    ("lars", one_norm_for_all),
]


@pytest.mark.parametrize(("name", "bug"), PARTS_BUGS)
def test_the_law_of_parts_catches(name, bug):
    with pytest.raises(AssertionError):
        parts_train_as_the_whole(OPTIMIZERS[name], 3, total=bug)
