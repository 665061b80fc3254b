"""Bugs of gradient compression; their oracles are conservation, the textbook by sorting, and exact means."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from backends.comm import run_ranks
from backends.data_parallel import Compressed
from backends.data_parallel.compression import (
    QSGD,
    DeepGradientCompression,
    OneBit,
    PowerSGD,
    ScaledSign,
    TopK,
)
from backends.data_parallel.compression.compressor import Compressor
from minigrad import nn, optim
from tests.backends.data_parallel.compression.compression_laws import (
    InOrder,
    Textbook,
    nothing_is_lost,
    sent,
    started,
    trains_like,
)
from tests.bugs.bug import Bug

SIZES = [7, 5, 8]

# Laws


def small(rng: np.random.Generator) -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(1, 3, (2, 3), padding=1, rng=rng), nn.ReLU(), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(27, 7, rng=rng), nn.Tanh(), nn.Linear(7, 3, rng=rng))


def what_is_not_sent_is_kept() -> None:
    for name in ("top-k", "one-bit", "power-sgd"):
        strategy = lambda c, name=name: Compressed(c, compress=name)  # noqa: E731
        run_ranks(3, lambda comm, s=strategy: nothing_is_lost(s, comm, small, SIZES))


def like(reference: Any, compressor: Callable[[], Compressor], *, momentum: float) -> None:
    def work(comm):
        make = lambda parameters: optim.SGD(parameters, 0.1, momentum=momentum)  # noqa: E731
        strategy = lambda c: Compressed(c, compress=compressor())  # noqa: E731
        trains_like(strategy, reference, comm, small, SIZES, make=make)

    run_ranks(3, work)


def top_k_is_the_textbooks() -> None:
    like(partial(Textbook, density=0.1), partial(TopK, density=0.1), momentum=0.9)


def corrected_momentum_is_the_textbooks() -> None:
    for apart in (False, True):
        textbook = partial(Textbook, density=0.3, momentum=0.9, apart=apart)
        like(textbook, partial(DeepGradientCompression, density=0.3, apart=apart), momentum=0.0)


def all_entries_are_the_dense_sum() -> None:
    like(InOrder, partial(TopK, density=1), momentum=0.9)


def rounding_has_no_preference() -> None:
    """The mean of 400 draws, in the largest standard deviation that rounding can give it."""
    v = np.random.default_rng(0).normal(size=60)
    compressor = started(QSGD(levels=3), (60,))
    mean = np.mean([sent(compressor, v) for _ in range(400)], axis=0)
    off = abs(mean - v).max() / (np.linalg.norm(v) / compressor.levels / 2 / 20)
    assert off < 5, f"the mean of 400 draws is {off:.1f} standard deviations off"


def signs_stand_for_their_means() -> None:
    v = np.random.default_rng(0).normal(size=12)
    left = v - sent(started(OneBit(), (12,)), v)
    sums = [float(left[sign].sum()) for sign in (v >= 0, v < 0)]
    assert max(map(abs, sums)) < 1e-12, f"the residuals of the two signs add up to {sums}"
    scaled = sent(started(ScaledSign(), (12,)), v)
    np.testing.assert_allclose(scaled, np.sign(v) * abs(v).mean())


def low_rank_sums_are_projections() -> None:
    from tests.backends.data_parallel.compression.compression_laws import low_rank_law

    low_rank_law(lambda r: PowerSGD(matrix_rank=r), 3, [(4, 6), (5,)], 0, r=2)


# Bugs

RESIDUAL, LOST, BOOK = "self.error = v - own", "was lost or came from nowhere", "differs by"

BUGS = [
    Bug("the residual is dropped", "Compressed.finish", RESIDUAL, "self.error = v * 0",
        what_is_not_sent_is_kept, LOST),
    Bug("the residual is added twice", "Compressed.finish", "self.compressor.apply_feedback(self.error,",
        "self.compressor.apply_feedback(2 * self.error,", what_is_not_sent_is_kept, LOST),
    Bug("the learning rate is in the residual only", "Compressed.finish", RESIDUAL,
        "self.error = 0.1 * (v - own)", what_is_not_sent_is_kept, LOST),
    Bug("what all sent is taken off this rank's residual", "Compressed.finish", RESIDUAL,
        "self.error = v - total", what_is_not_sent_is_kept, LOST),
    Bug("the residual forgets the steps before", "Compressed.finish", RESIDUAL,
        "self.error = self.bucket.message - own", what_is_not_sent_is_kept, LOST),
    Bug("the sum is divided by the ranks", "Compressed.finish", "self.layout.views(total)",
        "self.layout.views(total / self.size)", what_is_not_sent_is_kept, LOST),
    Bug("the mask is on the velocity, not on the residual", "Compressed.finish", RESIDUAL,
        "self.error = v.copy()", corrected_momentum_is_the_textbooks, BOOK),
    Bug("one rank's indices for another's values", "Sparsifier.add", "total[indices] += values",
        "total[self.sent_indices] += values", top_k_is_the_textbooks, BOOK),
    Bug("values of one place replace one another", "Sparsifier.add", "total[indices] += values",
        "total[indices] = values", top_k_is_the_textbooks, BOOK),
    Bug("one entry too few is sent", "sparsification.largest", "sizes.size - k :]", "sizes.size - k + 1 :]",
        top_k_is_the_textbooks, BOOK),
    Bug("the largest entries, not the largest in size", "TopK.choose",
        "return largest(abs(v), count_of(self.density, v.size))",
        "return largest(v, count_of(self.density, v.size))", top_k_is_the_textbooks, BOOK),
    Bug("rank 0's message is added for each rank", "AllGatherCompressor.exchange",
        "self.add(message[start:], total)", "self.add(messages[0][start:], total)",
        all_entries_are_the_dense_sum, BOOK),
    Bug("what was sent keeps its velocity", "DeepGradientCompression.commit",
        "self.velocity[self.sent_indices] = 0", "pass", corrected_momentum_is_the_textbooks, BOOK),
    Bug("the velocity is not kept", "DeepGradientCompression.commit", "self.velocity = self.next_velocity",
        "self.velocity = self.next_velocity * 0", corrected_momentum_is_the_textbooks, BOOK),
    Bug("momentum does not act on what waits", "DeepGradientCompression.apply_feedback",
        "return v if error is None else error + v", "return v if error is None else error + g",
        corrected_momentum_is_the_textbooks, BOOK),
    Bug("indices are counted within the parameter", "DeepGradientCompression.choose", "[start + indices for",
        "[indices for", corrected_momentum_is_the_textbooks, BOOK),
    Bug("rounding goes to the nearest", "QSGD.compress",
        "self.generator(self.seed, self.rank, xp).random(v.size, dtype=v.dtype)", "0.5",
        rounding_has_no_preference, "standard deviations off"),
    Bug("the mean of a sign is over both", "OneBit.levels", "xp.maximum(len(x) - count, 1)", "len(x)",
        signs_stand_for_their_means, "residuals of the two signs"),
    Bug("the basis is not made orthogonal", "orthonormal", "return array_module(p).linalg.qr(p)[0]",
        "return p", low_rank_sums_are_projections, "Not equal to tolerance"),
    Bug("the sum's projection is taken for this rank's", "PowerSGD.exchange",
        "((total, self.q), (own, mine))", "((total, self.q), (own, self.q))", low_rank_sums_are_projections,
        "Not equal to tolerance"),
]  # fmt: skip
