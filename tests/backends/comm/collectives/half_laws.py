"""Laws of backends/comm/collectives/__init__.py: every collective sends 16 bits of a float16 number, and a
sum has the same bits on all ranks, within the bound of its roundings. Programs that each rank runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from backends.comm import Communicator, collectives
from backends.comm.trace import Traced
from minigrad.device import Array, to_host

UNIT = 2.0**-11
"""The unit roundoff of float16."""
LEAST_INFINITE = 65520.0
"""The least number that is rounded to infinity."""

KINDS: dict[str, Callable[[np.random.Generator, int, int], np.ndarray]] = {
    "alike": lambda rng, p, n: rng.normal(size=(p, n)),
    "scales": lambda rng, p, n: rng.normal(size=(p, n)) * 2.0 ** rng.integers(-24, 11, (p, n)),
    "subnormal": lambda rng, p, n: rng.integers(-9, 10, (p, n)) * 2.0**-24,
    "cancelling": lambda rng, p, n: (
        3000 * rng.normal(size=n) * (-1) ** np.arange(p)[:, None] + rng.normal(size=(p, n))
    ),
    "large": lambda rng, p, n: rng.uniform(20_000, 65_504, (p, n)) * rng.choice([-1, 1], n),
    "infinite": lambda rng, p, n: np.where(rng.random((p, n)) < 0.2, np.inf, rng.normal(size=(p, n))),
    "no numbers": lambda rng, p, n: rng.choice([np.inf, -np.inf, np.nan, 1.0, 65_504.0], (p, n)),
}
"""Numbers of ``p`` ranks, (p, n), by what is special in their sums."""


def numbers(kind: str, ranks: int, n: int, seed: int) -> list[np.ndarray]:
    """Arrays of float16, one for each rank."""
    return [*KINDS[kind](np.random.default_rng([seed, n]), ranks, n).astype(np.float16)]


def is_bounded_sum(total: np.ndarray, terms: Sequence[np.ndarray]) -> None:
    """Assert that ``total`` is the sum of ``terms`` but for one rounding of each of the p - 1 additions.

    A float16 sum is the exact one times 1 + d, |d| <= u = 2^-11; below 2^-14 it is exact, as all numbers are
    multiples of 2^-24. So in any order |error| <= ((1 + u)^(p - 1) - 1) sum |x_r|, as long as no partial sum
    may overflow. Of one sign, numbers with a sum beyond 65520 (1 + u)^p give the infinity of that sign; a sum
    with a term that is not finite is not finite. float64 adds float16 numbers exactly.
    """
    x = np.stack(terms).astype(np.float64)
    with np.errstate(invalid="ignore"):  # inf - inf
        exact, growth = x.sum(axis=0), (1 + UNIT) ** (len(terms) - 1)
        magnitude = np.abs(x).sum(axis=0)
        error = np.abs(total.astype(np.float64) - exact)
        safe = magnitude * growth < LEAST_INFINITE
        wrong = safe & ~(error <= (growth - 1) * magnitude)
    assert not wrong.any(), (
        f"{total[wrong][:3]} are no sums of {x[:, wrong][:, :3].tolist()} to {len(terms) - 1} roundings"
    )
    one_sign = (x > 0).all(axis=0) | (x < 0).all(axis=0)
    beyond = one_sign & (magnitude > LEAST_INFINITE * (1 + UNIT) ** len(terms))
    assert (total[beyond] == np.sign(exact[beyond]) * np.inf).all(), (
        f"{total[beyond][:3]} are sums beyond the numbers of float16"
    )
    lost = ~np.isfinite(x).all(axis=0)
    assert not np.isfinite(total[lost]).any(), f"{total[lost][:3]} are sums with terms that are not finite"


def all_reduce_16_bounded(
    allreduce: Callable[[Communicator, Array], Array], comm: Communicator, terms: Sequence[np.ndarray]
) -> None:
    """Assert that this rank gets a bounded sum of all ranks' float16 ``terms``, with the bits of all ranks.

    The messages are those of float32, with half of their bytes.
    """
    x = terms[comm.rank].copy()
    with np.errstate(over="ignore", invalid="ignore"):
        total = sends_half(lambda comm, x: allreduce(comm, x), comm, x)
        for other in collectives.allgather(comm, total):
            assert other.tobytes() == total.tobytes(), f"ranks have {total[:3]} and {other[:3]} for one sum"
    assert total.dtype == np.float16 and total.shape == x.shape, f"got {total.dtype}{total.shape}"
    assert np.array_equal(x, terms[comm.rank], equal_nan=True), "the input was changed"
    is_bounded_sum(total, terms)


def reductions_are_bounded(comm: Communicator, terms: Sequence[np.ndarray]) -> None:
    """Assert the same of a reduce to each root, and of a reduce-scatter."""
    p, x = comm.size, terms[comm.rank]
    cuts = [slice(len(x) * i // p, len(x) * (i + 1) // p) for i in range(p)]
    with np.errstate(over="ignore", invalid="ignore"):
        for root in range(p):
            total = sends_half(lambda comm, x, root=root: collectives.reduce(comm, x, root=root), comm, x)
            assert (total is None) == (comm.rank != root)
            if total is not None:
                is_bounded_sum(total, terms)
        part = sends_half(
            lambda comm, x: comm.collective(collectives.reduce_scatter, [x[cut] for cut in cuts]), comm, x
        )
    assert part.dtype == np.float16, f"got {part.dtype}"
    is_bounded_sum(part, [term[cuts[comm.rank]] for term in terms])


def what_moves_keeps_its_bits(comm: Communicator, terms: Sequence[np.ndarray]) -> None:
    """Assert that each collective without a sum, and a send, brings 16 bits a number, and these bits."""
    p, x = comm.size, terms[comm.rank]

    def shift(comm: Communicator, x: Array) -> Array:
        finish = comm.start_send(x, (comm.rank + 1) % p, 5)
        received = comm.recv((comm.rank - 1) % p, 5, expect=x)
        finish()
        return received

    def same(result: Sequence[Array], expected: Sequence[np.ndarray]) -> None:
        assert [to_host(a).tobytes() for a in result] == [b.tobytes() for b in expected]
        assert all(a.dtype == np.float16 for a in result), [a.dtype for a in result]

    same([sends_half(lambda comm, x: comm.collective(collectives.broadcast, x), comm, x)], [terms[0]])
    same(sends_half(lambda comm, x: comm.collective(collectives.allgather, x), comm, x), terms)
    same(sends_half(lambda comm, x: comm.collective(collectives.alltoall, [x] * p), comm, x), terms)
    if p > 1:
        same([sends_half(shift, comm, x)], [terms[comm.rank - 1]])


def sends_half(collective: Callable[[Communicator, Array], Any], comm: Communicator, x: np.ndarray) -> Any:
    """The result for ``x``; asserts that it sends as many messages as in float32, and half of the bytes."""
    half, single = Traced(comm), Traced(comm)
    result = collective(half, x)
    collective(single, x.astype(np.float32))
    (messages, nbytes), expected = half.record.ledger.sent(), single.record.ledger.sent()
    assert (messages, 2 * nbytes) == expected, (
        f"rank {comm.rank} sent {nbytes} bytes in {messages} messages, in float32 {expected}"
    )
    return result
