"""Laws of backends/model_parallel/layers/class_parallel.py: cross-entropy over classes that the ranks
share is the dense one, and sends three numbers per sample.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.comm import run_ranks
from backends.comm.trace import Traced
from backends.laws import bound_for, trains_like_serial
from backends.model_parallel.layers.class_parallel import sharded_cross_entropy
from backends.model_parallel.layers.sharding import Shard
from backends.model_parallel.model_parallel import ModelParallel
from minigrad import nn, ops
from minigrad.data import Batch
from minigrad.tape import Tape
from minigrad.tensor import Tensor
from tests.backends.model_parallel.layers.class_parallel_laws import agrees, loss_and_gradient
from tests.bugs.mutant import mutant


@st.composite
def problems(draw, scale=1.0):
    """Logits, labels, and how 1 to 6 ranks share the classes, some of them maybe none."""
    n, n_classes, ranks = draw(st.integers(1, 9)), draw(st.integers(1, 12)), draw(st.integers(1, 6))
    inner = draw(st.lists(st.integers(0, n_classes), min_size=ranks - 1, max_size=ranks - 1))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    logits = scale * rng.normal(size=(n, n_classes))
    kind = draw(st.sampled_from([np.int64, np.int32, np.uint8]))
    return logits, rng.integers(0, n_classes, n).astype(kind), (0, *sorted(inner), n_classes)


@given(problem=problems())
def test_equals_the_dense_loss(problem):
    agrees(*problem)


@given(problem=problems(scale=1e4))
def test_is_stable_for_large_logits(problem):
    agrees(*problem)
    logits, labels, bounds = problem
    agrees(logits + 1e4, labels, bounds)


@given(problem=problems())
def test_in_single_precision(problem):
    logits, labels, bounds = problem
    agrees(logits.astype(np.float32), labels, bounds, bound=bound_for(np.float32))


def test_labels_are_whatever_the_dense_loss_takes():
    logits = np.zeros((2, 3))
    agrees(logits, [0, 2], (0, 1, 3))
    mistakes = [[0], [0.0, 1.0], [0, 3], [-1, 0]]
    for labels in mistakes:
        with pytest.raises((ValueError, TypeError)) as dense:
            ops.cross_entropy(Tensor(logits), np.array(labels))
        with pytest.raises((ValueError, TypeError)) as sharded:
            run_ranks(
                2,
                lambda comm, y=labels: loss_and_gradient(
                    sharded_cross_entropy,
                    logits[:, Shard(1, comm, (0, 1, 3)).local_slice],
                    np.array(y),
                    1.0,
                    shard=Shard(1, comm, (0, 1, 3)),
                ),
            )
        assert str(sharded.value) == str(dense.value)


def test_no_samples_need_no_message():
    def work(comm):
        traced = Traced(comm)
        shard = Shard(1, traced, (0, 1, 3))
        logits = np.zeros((0, 3))[:, shard.local_slice]
        result = loss_and_gradient(sharded_cross_entropy, logits, np.zeros(0, int), 1.0, shard=shard)
        return result[0], result[1].shape, traced.record.ledger.sent()

    assert run_ranks(2, work) == [(0.0, (0, 1), (0, 0)), (0.0, (0, 2), (0, 0))]


@given(ranks=st.integers(1, 5), n=st.integers(1, 7), n_classes=st.integers(1, 40))
def test_three_numbers_per_sample_are_reduced_and_none_on_the_way_back(ranks, n, n_classes):
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(n, n_classes)), rng.integers(0, n_classes, n)

    def work(comm):
        traced = Traced(comm)
        shard = Shard(1, traced, tuple(n_classes * r // ranks for r in range(ranks + 1)))
        loss_and_gradient(sharded_cross_entropy, logits[:, shard.local_slice], labels, 1.0, shard=shard)
        return tuple(traced.record.ledger.sent())

    others = ranks - 1  # the all-reduce of threads sends everything to everyone
    assert run_ranks(ranks, work) == [(3 * others, 3 * others * n * 8)] * ranks


# As the last layer of a model


def build(rng, width=5, n_classes=7):
    return nn.Sequential(nn.Linear(4, width, rng=rng), nn.Tanh(), nn.Linear(width, n_classes, rng=rng))


def batches(sizes=(6, 1, 5), n_classes=7):
    rng = np.random.default_rng(1)
    return [Batch(rng.normal(size=(n, 4)), rng.integers(0, n_classes, n)) for n in sizes]


def one_hot_mse(out, y):
    return ops.mse(out, np.eye(7)[y])


@pytest.mark.parametrize("loss", [ops.cross_entropy, one_hot_mse, nn.NLLLoss(ignore_index=-1)])
@pytest.mark.parametrize(
    "plan", [{"2": "classes"}, {"0": "column", "2": "classes"}, {"0": "row", "2": "classes"}]
)
@given(ranks=st.integers(1, 6))
def test_trains_like_serial(loss, plan, ranks):
    """Cross-entropy takes the classes as they are, any other loss gathers them."""
    strategy = lambda comm: ModelParallel(comm, plan)  # noqa: E731
    run_ranks(ranks, lambda comm: trains_like_serial(strategy, comm, build, loss, batches()))


def test_the_logits_are_whole_in_eval_mode_with_and_without_a_tape():
    x = batches()[0].x
    expected = build(np.random.default_rng(0)).to(dtype=np.float64)(x).data

    def work(comm):
        model = ModelParallel(comm, {"2": "classes"}).place(
            build(np.random.default_rng(0)).to(dtype=np.float64)
        )
        part = model(x).shape
        whole = model.eval()(x).data
        with Tape():
            return part, whole, model(Tensor(x)).data

    for rank, (part, *whole) in enumerate(run_ranks(3, work)):
        assert part == (6, [2, 2, 3][rank])
        for logits in whole:
            np.testing.assert_allclose(logits, expected, rtol=1e-12)


def test_only_the_last_layer_can_be_split_by_classes():
    for plan in ({"0": "classes"}, {"0": "classes", "2": "row"}):
        with pytest.raises(
            ValueError, match="layer 0 cannot be split by 'classes': only the last .* choose column"
        ):
            run_ranks(2, lambda comm, p=plan: ModelParallel(comm, p).place(build(np.random.default_rng(0))))


# Seeded bugs

BUGS = {
    "a class belongs to two ranks": (
        "labels >= shard.local_slice.start)",
        "labels >= shard.local_slice.start - 1)",
    ),
    "the largest is this rank's own": ("allreduce(comm, largest, xp.maximum)", "largest"),
    "the largest are added": (", xp.maximum)", ")"),
    "no largest is taken off": ("p = logits - largest[:, None]", "p = logits.copy()"),
    "the sum is this rank's own": ("allreduce(comm, p.sum(axis=1))", "p.sum(axis=1)"),
    "the label's logit is this rank's own": ("own = allreduce(comm, own)", "own = own + 0"),
    "the label is not taken off": ("d[place] -= g / divisor", "d[place] -= 0"),
    "each rank takes the mean over all ranks": (".sum() / divisor", ".sum() / (divisor * comm.size)"),
    "the gradient is summed over the ranks": (
        "return d if d.dtype == dtype else rounded(d, dtype)\n",
        "return allreduce(comm, d[:, :2])\n",
    ),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("bug", BUGS)
def test_the_law_catches(bug):
    loss = mutant("backends.model_parallel.layers.class_parallel", BUGS[bug]).sharded_cross_entropy
    logits = 800 * np.random.default_rng(0).normal(size=(7, 6))
    with pytest.raises(AssertionError):
        agrees(logits, np.arange(7) % 6, (0, 2, 4, 6), loss)
        agrees(logits / 800, np.arange(7) % 6, (0, 2, 4, 6), loss)
