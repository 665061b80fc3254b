"""Laws of backends/sequence_parallel/ring.py, ulysses.py, naive.py, tiles.py, fast_tiles.py and
token_order.py: attention over ranks is three loops over the whole rows, and sends what closed forms say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
from minigrad_course.machines.virtual_cluster import VirtualCluster

from backends.comm import run_ranks
from backends.comm.collectives.link import Link
from backends.comm.communicator import Wrapper
from backends.comm.trace import Traced
from minigrad import Tape, Tensor, ops
from minigrad.memory import retained_arrays
from tests.minigrad.ops.attention_laws import attention_by_loops

Attend = Callable[..., Tensor]
ColumnsOf = Callable[..., Sequence[np.ndarray]]
BOUND = 1e-12


class Rows(NamedTuple):
    """Rows of ``length`` tokens, with heads of 3 numbers, shared among ranks."""

    ranks: int
    length: int
    causal: bool = True
    documents: bool = False
    samples: int = 2
    heads: int = 2
    seed: int = 0

    def arrays(self) -> list[np.ndarray]:
        """g, q, k and v of the whole rows."""
        rng = np.random.default_rng(self.seed)
        return [rng.normal(size=(self.samples, self.length, self.heads, 3)) for _ in range(4)]

    def masks(self) -> dict[str, Any]:
        """Settings of attention to whole rows; documents have one or several tokens, or are padding."""
        if not self.documents:
            return {"causal": self.causal}
        rng = np.random.default_rng(self.seed)
        steps = rng.random((self.samples, self.length)) < 0.4
        return {"causal": self.causal, "documents": np.cumsum(steps, axis=1) - 1}


class Sent(NamedTuple):
    """Messages and numbers that a rank has sent in forward, and in both passes."""

    forward: tuple[int, float]
    both: tuple[int, float]


def attends_over_ranks(
    attend: Attend, columns: Sequence[np.ndarray], rows: Rows, *, sent: Callable[..., Sent] | None = None
) -> None:
    """Values and gradients on every rank are those of loops over whole rows; messages are the closed form.

    ``attend`` takes the q, k and v of a rank; ``sent`` makes the closed form of the rank's number.
    """
    g, *inputs = rows.arrays()
    masks = rows.masks()
    exact, _ = attention_by_loops(g, *inputs, **masks)

    def work(comm: Any) -> None:
        traced, own = Traced(comm), columns[comm.rank]
        ledger = traced.record.ledger
        leaves = [Tensor(x[:, own], requires_grad=True) for x in inputs]
        with Tape() as tape:
            y = attend(*leaves, comm=traced, columns=columns, **masks)
        forward = ledger.sent()
        tape.backward(y, g[:, own])
        results = y.data, *(x.grad for x in leaves)
        for what, a, b in zip(("value", "dq", "dk", "dv"), results, exact, strict=True):
            b = b[:, own]
            assert a is not None and a.shape == b.shape, what
            assert np.isfinite(a).all(), f"{what} of rank {comm.rank} has elements that are no numbers"
            error = np.abs(a - b).max(initial=0)
            assert error <= BOUND, f"{what} of rank {comm.rank} is off by {error:.1e}"
        if sent is not None:
            counts = Sent(*((n, nbytes / 8) for n, nbytes in (forward, ledger.sent())))
            assert counts == sent(comm.rank), f"rank {comm.rank} sent {counts}, not {sent(comm.rank)}"

    run_ranks(rows.ranks, work)


def attends_over_ranks_in_halves(attend: Attend, columns: Sequence[np.ndarray], rows: Rows) -> None:
    """Of float16 values and gradients are float16, near those of loops, and so is all that is sent."""
    g, *inputs = (x.astype(np.float16) for x in rows.arrays())
    exact, _ = attention_by_loops(*(x.astype(np.float64) for x in (g, *inputs)), **rows.masks())
    numbers_of = sent_by_ring(columns, rows)

    def work(comm: Any) -> None:
        traced, own = Traced(comm), columns[comm.rank]
        leaves = [Tensor(x[:, own], requires_grad=True) for x in inputs]
        with Tape() as tape:
            y = attend(*leaves, comm=traced, columns=columns, **rows.masks())
        _, forward = traced.record.ledger.sent()
        kinds = {a.dtype.char for a in retained_arrays([p for *_, p in tape.entries[-1]]) if a.ndim == 4}
        tape.backward(y, g[:, own])
        for a, b in zip((y.data, *(x.grad for x in leaves)), exact, strict=True):
            assert a is not None and a.dtype == np.float16, "a result has other bits"
            error = np.abs(a - b[:, own]).max(initial=0)
            assert error <= 2.0**-7 * max(np.abs(b).max(initial=0), 1), f"a result is off by {error:.1e}"
        assert kinds <= {"e"}, f"a tape holds arrays of {kinds}"
        (_, numbers), (_, both) = numbers_of(comm.rank)
        counts, expected = (forward, traced.record.ledger.sent()[1]), (2 * numbers, 2 * both)
        assert counts == expected, f"{counts} bytes are sent, not {expected}"

    run_ranks(rows.ranks, work)


def sent_by_ring(columns: Sequence[np.ndarray], rows: Rows, arrays: int = 1) -> Callable[[int], Sent]:
    """What a ring sends by rank, where a block is so many ``arrays``."""
    p, lengths = rows.ranks, [len(own) for own in columns]
    unit = rows.samples * rows.heads * (3 + 3)  # of keys and values of a token

    def sent(rank: int) -> Sent:
        forward = sum(lengths[(rank - t) % p] for t in range(p - 1))
        gradients = sum(lengths[(rank - t) % p] for t in range(1, p))
        hops = arrays * (p - 1)
        return Sent((hops, unit * forward), (3 * hops, unit * (2 * forward + gradients)))

    return sent


def sent_by_ulysses(columns: Sequence[np.ndarray], rows: Rows) -> Callable[[int], Sent]:
    """What two exchanges of each pass send, by rank."""
    p, unit = rows.ranks, rows.samples * 3  # of a head of a token

    def sent(rank: int) -> Sent:
        cuts = [rows.heads * i // p for i in range(p + 1)]
        heads, n = cuts[rank + 1] - cuts[rank], len(columns[rank])
        others, elsewhere = rows.heads - heads, rows.length - n
        forward = unit * (3 * n * others + heads * elsewhere)
        backward = unit * (n * others + 3 * heads * elsewhere)
        return Sent((2 * (p - 1), forward), (4 * (p - 1), forward + backward))

    return sent


def as_one(attend: Attend) -> Attend:
    """A form that takes queries, keys and values as one array."""
    return lambda *x, **settings: attend(ops.concatenate(*x, axis=3), **settings)


def shares_tokens(columns_of: ColumnsOf, length: int, ranks: int, order: str) -> None:
    """Each token is on one rank, columns rise, and the ranks' numbers of tokens differ by two at most."""
    columns = columns_of(length, ranks, order)
    assert len(columns) == ranks
    assert sorted(np.concatenate(columns).tolist()) == [*range(length)], f"tokens are shared as {columns}"
    assert all((np.diff(own) > 0).all() for own in columns), columns
    sizes = [len(own) for own in columns]
    assert max(sizes) - min(sizes) <= (1 if order == "contiguous" else 2), sizes
    if order == "contiguous":
        assert np.concatenate(columns).tolist() == [*range(length)], columns


def is_balanced(columns_of: ColumnsOf, ranks: int, tokens: int) -> None:
    """Of 2 p ``tokens`` in zig-zag order all ranks see S (S + 1) / (2 p) keys, and no step waits for a rank.

    In plain order rank r sees n n (r + 1/2) + n / 2.
    """
    length = 2 * ranks * tokens

    def keys(order: str) -> list[list[int]]:
        columns = columns_of(length, ranks, order)
        return [[sum(int(j <= i) for i in one for j in other) for other in columns] for one in columns]

    sums = [sum(row) for row in keys("zigzag")]
    assert sums == [length * (length + 1) // (2 * ranks)] * ranks, f"ranks see {sums} keys"
    n, plain = length // ranks, keys("contiguous")
    assert [2 * sum(row) for row in plain] == [n * n * (2 * r + 1) + n for r in range(ranks)]
    steps = {order: seconds_of_ring(keys(order)) for order in ("zigzag", "contiguous")}
    assert 2 * steps["contiguous"] == 2 * (ranks - 1) * n * n + n * (n + 1)
    assert 2 * steps["zigzag"] == ranks * n * n + n, steps


def seconds_of_ring(keys: Sequence[Sequence[int]]) -> int:
    """The sum over steps of the most pairs of a rank in the step, by loops."""
    p = len(keys)
    return sum(max(keys[r][(r - t) % p] for r in range(p)) for t in range(p))


def counts_pairs(pairs_of: Callable[..., np.ndarray], columns: Sequence[np.ndarray], causal: bool) -> None:
    """The table of pairs is counted one by one."""
    expected = [[sum(j <= i or not causal for i in a for j in b) for b in columns] for a in columns]
    assert pairs_of(columns, causal).tolist() == expected


class Timed(Wrapper):
    """Ranks whose attention to the blocks that they look at takes these ``seconds``, one after the other."""

    def __init__(self, comm: Any, seconds: Iterable[float]):
        super().__init__(comm)
        self.seconds = iter(seconds)

    def computing(self, name: str) -> Any:
        self.compute(next(self.seconds))
        return nullcontext()


def computes_as_much_as_its_order_allows(
    attend: Attend, columns_of: ColumnsOf, order: str, ranks: int, tokens: int
) -> None:
    """A causal ring computes (S + 1) / (2 S - n + 1) of the time in plain order, and always in zig-zag order.

    Forward of S tokens, n on each rank, where a pair of a query and a key takes a second and a message none.
    """
    length, n = 2 * tokens * ranks, 2 * tokens
    columns = columns_of(length, ranks, order)
    _, *inputs = Rows(ranks, length, samples=1, heads=1).arrays()
    cluster = VirtualCluster(ranks, link=Link(0.0, 1e30))

    def work(comm: Any) -> None:
        own = columns[comm.rank]
        pairs = [sum(j <= i for i in own for j in columns[(comm.rank - t) % ranks]) for t in range(ranks)]
        timed = Timed(comm, filter(None, pairs))
        attend(*(x[:, own] for x in inputs), comm=timed, columns=columns)

    cluster.run(work)
    efficiency = length * (length + 1) / 2 / (ranks * cluster.seconds)
    expected = 1.0 if order == "zigzag" else (length + 1) / (2 * length - n + 1)
    assert abs(efficiency - expected) < 1e-12, (efficiency, expected)


def seconds_of_passes(
    attend: Attend, columns_of: ColumnsOf, ranks: int, seconds: float, latency: float
) -> tuple[float, float]:
    """When forward and both passes are done, where a block's attention and a message take so long."""
    rows = Rows(ranks, 4 * ranks, causal=False)
    columns = columns_of(rows.length, ranks, "zigzag")
    g, *inputs = rows.arrays()
    cluster = VirtualCluster(ranks, link=Link(latency, 1e30))

    def work(comm: Any) -> float:
        own = columns[comm.rank]
        leaves = [Tensor(x[:, own], requires_grad=True) for x in inputs]
        with Tape() as tape:
            y = attend(*leaves, comm=Timed(comm, repeat(seconds)), columns=columns, causal=False)
        forward = comm.time()
        tape.backward(y, g[:, own])
        return forward

    return max(cluster.run(work)), cluster.seconds


def hides_the_link(attend: Attend, columns_of: ColumnsOf, ranks: int, seconds: float, latency: float) -> None:
    """A step of forward takes what is longer, its attention or its message; the last one sends nothing."""
    forward, _ = seconds_of_passes(attend, columns_of, ranks, seconds, latency)
    expected = (ranks - 1) * max(seconds, latency) + seconds
    assert abs(forward - expected) < 1e-9, (forward, expected)


def hides_two_messages(
    attend: Attend, columns_of: ColumnsOf, ranks: int, seconds: float, latency: float
) -> None:
    """Where a step is longer than its two messages, backward waits for the gradients' last hop alone."""
    forward, both = seconds_of_passes(attend, columns_of, ranks, seconds, latency)
    assert abs(both - forward - (ranks * seconds + latency)) < 1e-9, (forward, both)
