"""Laws of backends/data_parallel/compression/dgc.py, low_rank.py, quantization.py and sparsification.py:
compressors with one line changed, each caught by the law of what it breaks.
"""

import numpy as np
import pytest

from backends.comm import run_ranks
from backends.data_parallel import Compressed
from backends.data_parallel.compression import QSGD, DeepGradientCompression, OneBit, PowerSGD, TopK
from tests.backends.data_parallel.compression.compression_laws import (
    InOrder,
    Textbook,
    low_rank_law,
    momentum,
    nothing_is_lost,
    plain,
    sent,
    started,
    trains_like,
)
from tests.bugs.mutant import mutant
from tests.nets import odd

FOLDER = "backends.data_parallel.compression"
SIZES = [7, 5, 8]


def changed(module, name, *changes):
    return getattr(mutant(f"{FOLDER}.{module}", *changes), name)


RESIDUAL = "self.error = v - own"


@pytest.mark.parametrize(
    "change",
    [
        (RESIDUAL, "self.error = v * 0"),  # dropped
        (
            "self.compressor.apply_feedback(self.error,",
            "self.compressor.apply_feedback(2 * self.error,",
        ),  # twice
        (RESIDUAL, "self.error = 0.1 * (v - own)"),  # the learning rate on one side only
        (RESIDUAL, "self.error = v - total"),  # what all sent is not this rank's
        (RESIDUAL, "self.error = self.bucket.message - own"),  # forgets what was left before
        ("self.layout.views(total)", "self.layout.views(total / self.size)"),
    ],
)
@pytest.mark.parametrize("name", ["top-k", "one-bit", "power-sgd"])
def test_conservation_catches_residuals_that_are_wrong(change, name):
    strategy = changed("compressed", "Compressed", change)
    with pytest.raises(AssertionError, match="was lost or came from nowhere"):
        run_ranks(3, lambda comm: nothing_is_lost(lambda c: strategy(c, compress=name), comm, odd, SIZES))


@pytest.mark.parametrize(
    ("module", "name", "change"),
    [
        (
            "compressor",
            "AllGatherCompressor",
            ("self.add(message[start:], total)", "self.add(messages[0][start:], total)"),
        ),
        (
            "sparsification",
            "TopK",
            ("total[indices] += values", "total[self.sent_indices] += values"),
        ),  # one's, another's
        ("sparsification", "TopK", ("total[indices] += values", "total[indices] = values")),
        ("sparsification", "TopK", ("sizes.size - k :]", "sizes.size - k + 1 :]")),
        ("sparsification", "TopK", ("return largest(abs(v), count_of", "return largest(v, count_of")),
    ],
)
def test_the_textbook_catches_wrong_exchanges(module, name, change):
    """With the right code in its place the same law holds."""
    kind = changed(module, name, change)
    if module == "compressor":
        kind = type("Broken", (TopK,), {"exchange": kind.exchange})
    textbook = lambda comm: Textbook(comm, 0.1)  # noqa: E731

    def work(comm, make):
        strategy = lambda c: Compressed(c, compress=make(density=0.1))  # noqa: E731
        trains_like(strategy, textbook, comm, odd, SIZES, make=momentum)

    run_ranks(3, lambda comm: work(comm, TopK))
    with pytest.raises(AssertionError, match="differs by"):
        run_ranks(3, lambda comm: work(comm, kind))


@pytest.mark.parametrize(
    "change",
    [
        ("self.velocity[self.sent_indices] = 0", "pass"),  # no masking
        ("if self.masking:", "if not self.masking:"),
        ("self.velocity = self.next_velocity", "pass"),  # u forgotten
        ("return v if error is None else error + v", "return v if error is None else error + g"),
        ("[start + indices for", "[indices for"),  # indices within the parameter
    ],
)
def test_the_textbook_catches_wrong_momentum(change):
    law_of_dgc(changed("dgc", "DeepGradientCompression", change), caught=True)


def law_of_dgc(kind, *, caught, strategy=Compressed):
    textbook = lambda comm: Textbook(comm, 0.3, momentum=0.9, apart=True)  # noqa: E731

    def work(comm):
        result = lambda c: strategy(c, compress=kind(density=0.3, apart=True))  # noqa: E731
        trains_like(result, textbook, comm, odd, SIZES, make=plain)

    if not caught:
        run_ranks(3, work)
        return
    with pytest.raises(AssertionError, match="differs by"):
        run_ranks(3, work)


def test_the_textbook_catches_a_mask_that_is_on_the_velocity_and_not_on_the_residual():
    law_of_dgc(DeepGradientCompression, caught=False)
    broken = changed("compressed", "Compressed", (RESIDUAL, "self.error = v.copy()"))
    law_of_dgc(DeepGradientCompression, caught=True, strategy=broken)


@pytest.mark.parametrize(
    "change",
    [
        ("return array_module(p).linalg.qr(p)[0]", "return p"),
        ("return array_module(p).linalg.qr(p)[0]", "return p / (p**2).sum(axis=0) ** 0.5"),  # not orthogonal
        ("mine = [x.T @ p", "mine = [x.T @ p * 2"),
        ("((total, self.q), (own, mine))", "((total, self.q), (own, self.q))"),  # the sum as its own
        ("((total, self.q), (own, mine))", "((total, mine), (own, mine))"),
    ],
)
def test_the_laws_of_low_rank_catch(change):
    kind = changed("low_rank", "PowerSGD", change)
    low_rank_law(lambda r: PowerSGD(matrix_rank=r), 3, [(4, 6), (5,)], 0, r=2)
    with pytest.raises(AssertionError):
        low_rank_law(lambda r: kind(matrix_rank=r), 3, [(4, 6), (5,)], 0, r=2)


def test_a_start_that_is_not_warm_is_no_bug():
    """Only slower: Q is drawn anew in each step."""
    kind = changed("low_rank", "PowerSGD", ("products = [", "self.start(self.layout, 0, 0); products = ["))
    low_rank_law(lambda r: kind(matrix_rank=r), 3, [(4, 6), (5,)], 0, r=2)


def mean_error(compressor):
    """How far the mean of 400 draws is off, in the largest standard deviation that rounding can give it."""
    v = np.random.default_rng(0).normal(size=60)
    started(compressor, (60,))
    mean = np.mean([sent(compressor, v) for _ in range(400)], axis=0)
    return abs(mean - v).max() / (np.linalg.norm(v) / compressor.levels / 2 / 20)


@pytest.mark.parametrize(
    "change",
    [
        ("self.generator(self.seed, self.rank, xp).random(v.size, dtype=v.dtype)", "0.5"),  # to the nearest
        ("self.generator(self.seed, self.rank, xp).random(v.size, dtype=v.dtype)", "0"),  # down
        ("(scale / self.levels)", "(scale / (self.levels + 1))"),
    ],
)
def test_the_mean_catches_rounding_with_a_preference(change):
    assert mean_error(QSGD(levels=3)) < 5
    assert mean_error(changed("quantization", "QSGD", change)(levels=3)) > 6


def test_the_sum_of_each_column_catches_a_mean_over_both_signs():
    v = np.random.default_rng(0).normal(size=12)
    wrong = changed("quantization", "OneBit", ("xp.maximum(len(x) - count, 1)", "len(x)"))
    for kind, fine in ((OneBit, True), (wrong, False)):
        left = v - sent(started(kind(), (12,)), v)
        assert (abs(left[v < 0].sum()) < 1e-12) == fine


def test_a_dense_step_catches_a_compressor_that_forgets_the_last_entry():
    class Forgets(TopK):
        def choose(self, v):
            return super().choose(v)[:-1]

    def work(comm, compress):
        trains_like(lambda c: Compressed(c, compress=compress), InOrder, comm, odd, SIZES, make=momentum)

    run_ranks(2, lambda comm: work(comm, TopK(density=1)))
    with pytest.raises(AssertionError, match="differs by"):
        run_ranks(2, lambda comm: work(comm, Forgets(density=1)))
