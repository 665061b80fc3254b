"""What assignment a2 is held to: the exact sum on every rank, by exactly so many messages and bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

import hypothesis.strategies as st
import numpy as np
from minigrad_course.grading import Part, Task, Wrong
from minigrad_course.grading.restricted_comm import RestrictedComm

from backends.comm import Communicator
from backends.comm.trace import Traced
from minigrad.testing import c_order, fortran_order, reversed_order, with_gaps

ORDERS = {
    "C order": c_order,
    "Fortran order": fortran_order,
    "with gaps": with_gaps,
    "reversed": reversed_order,
}


@dataclass(frozen=True)
class Vector:
    """A one-dimensional array on each rank."""

    ranks: int
    length: int
    dtype: str
    seed: int
    order = "C order"

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.length,)

    def __str__(self) -> str:
        return f"{counted(self.ranks, 'rank')}, {counted(self.length, 'element')} of {self.dtype}"


@dataclass(frozen=True)
class AnyArray:
    """An array on each rank, whose elements lie in memory in some order."""

    ranks: int
    shape: tuple[int, ...]
    order: str
    dtype: str
    seed: int

    def __str__(self) -> str:
        return f"{counted(self.ranks, 'rank')}, shape {self.shape} of {self.dtype}, {self.order}"


# A counter-example shrinks to the first of a list: a usual size, where the unusual ones are not to blame.
SIDES = st.sampled_from([2, 3, 1, 4, 0])
LENGTHS = st.sampled_from([4, 7, 3, 2, 5, 1, 0, *range(8, 18)])
DTYPES = st.sampled_from(["float64", "float32", "int64"])
RANKS, SEEDS = st.integers(1, 5), st.integers(0, 2**16)
VECTORS = st.builds(Vector, RANKS, LENGTHS, DTYPES, SEEDS)
SHAPES = st.one_of(st.tuples(SIDES, SIDES), st.sampled_from([(3,), (2, 1, 3), (1, 4, 2), (1, 2, 1, 3)]))
ARRAYS = st.builds(AnyArray, RANKS, SHAPES, st.sampled_from(list(ORDERS)), DTYPES, SEEDS)


# The numbers tell who is in them: rank r brings 16^r times a number of its place. So a sum is 1 + 16 + 256
# + ... times that, and what a wrong one holds can be read off in hexadecimal digits. All are exact, also in
# float32, and no place's number is a multiple of another's.


class Wanted(NamedTuple):
    """An array, and the places' numbers that it is made of."""

    total: np.ndarray
    places: np.ndarray


def places(case: Any) -> np.ndarray:
    """A number between 20 and 39 for each element, all different."""
    numbers = np.random.default_rng(case.seed).permutation(np.arange(20, 40))
    return numbers[: size(case)].reshape(case.shape)


def own_array(case: Any, rank: int) -> np.ndarray:
    return ORDERS[case.order]((places(case) * 16**rank).astype(case.dtype))


def total(case: Any) -> np.ndarray:
    return (places(case) * sum(16**rank for rank in range(case.ranks))).astype(case.dtype)


def size(case: Any) -> int:
    return int(np.prod(case.shape))


def chunk(x: np.ndarray, ranks: int, which: int) -> np.ndarray:
    return np.array_split(x, ranks)[which % ranks]


# What is checked, on every rank


class Cost(NamedTuple):
    """What a rank has to send; ``to`` is the only rank it may send to, None where there are more."""

    messages: int
    elements: int
    to: int | None = None


def check_call(
    comm: Communicator, call: Callable[[Any], Any], x: np.ndarray, expected: Wanted, cost: Cost
) -> None:
    """``call(comm)``, which was given ``x``, is ``expected``, in new memory, and sends ``cost``."""
    let_sends_wait(comm)
    traced, before, me = Traced(comm), x.copy(), f"rank {comm.rank}"
    actual = call(RestrictedComm(traced))
    if type(actual) is not np.ndarray:
        raise Wrong(f"{me} returned {'nothing' if actual is None else type(actual).__name__}, not an array")
    if (actual.shape, actual.dtype) != (expected.total.shape, expected.total.dtype):
        raise Wrong(
            f"{me} returned {actual.dtype} of shape {actual.shape}, "
            f"it should be {expected.total.dtype} of shape {expected.total.shape}"
        )
    if not np.array_equal(x, before):
        raise Wrong(f"{me}'s input was changed: work on a copy")
    if np.may_share_memory(actual, x):
        raise Wrong(f"{me}'s result is the input's memory: return a new array")
    if not np.array_equal(actual, expected.total):
        raise Wrong(f"{me}'s {difference(actual, expected, comm.size)}")
    sent, ledger = f"the result is right, but {me} sent", traced.record.ledger
    messages, nbytes = ledger.sent()
    if messages != cost.messages:
        raise Wrong(f"{sent} {counted(messages, 'message')}, not {cost.messages}")
    if cost.to is not None and ledger.sent(cost.to).messages != messages:
        raise Wrong(f"{sent} messages to others than rank {cost.to}, its right neighbour")
    if nbytes != cost.elements * x.itemsize:
        raise Wrong(f"{sent} {counted(nbytes, 'byte')}, not {cost.elements * x.itemsize}")


def let_sends_wait(comm: Communicator) -> None:
    """Where ranks are threads, a send waits for its receiver, as MPI's does with a large message."""
    comm.use_synchronous_sends()


def difference(actual: np.ndarray, expected: Wanted, ranks: int) -> str:
    """The first wrong element: what is in it, where that can be read off, or its value."""
    at = tuple(int(i) for i in np.argwhere(actual != expected.total)[0])
    place = at[0] if len(at) == 1 else at
    times, rest = divmod(actual[at], expected.places[at])
    if rest == 0 and 0 <= times < 16**ranks:
        counts = [int(times) // 16**rank % 16 for rank in range(ranks)]
        words = {0: "not in it", 1: "in it once", 2: "in it twice"}
        words_of_ranks = [
            f"rank {rank} is {words.get(n, f'in it {n} times')}" for rank, n in enumerate(counts)
        ]
        return f"element {place} is wrong: {', '.join(words_of_ranks)}"
    return f"element {place} is {actual[at]:g}, it should be {expected.total[at]:g}"


def counted(n: int, noun: str) -> str:
    return f"{n} {noun}{'' if n == 1 else 's'}"


# The tasks


def naive_cost(case: Any, rank: int) -> Cost:
    messages = case.ranks - 1 if rank == 0 else 1
    return Cost(messages, messages * size(case))


def ring_cost(case: Any, rank: int, *without: int) -> Cost:
    """A ring for each chunk in ``without``, counted from the rank: the one that it does not send."""
    n, p = size(case), case.ranks
    length = sum(len(chunk(np.arange(n), p, rank + which)) for which in without)
    return Cost(len(without) * (p - 1), len(without) * n - length, (rank + 1) % p)


def doubling_cost(case: Any, rank: int) -> Cost:
    rounds = case.ranks.bit_length() - 1
    extra = case.ranks - 2**rounds
    messages = rounds if rank >= 2 * extra else 1 if rank % 2 == 0 else rounds + 1
    return Cost(messages, messages * size(case))


def sums(name: str, cost: Callable[[Any, int], Cost]) -> Callable[[Any, Any, Communicator], None]:
    """The check of an all-reduce."""

    def check(submission: Any, case: Any, comm: Communicator) -> None:
        x, expected = own_array(case, comm.rank), Wanted(total(case), places(case))
        check_call(comm, lambda comm: getattr(submission, name)(comm, x), x, expected, cost(case, comm.rank))

    return check


def check_reduce_scatter(submission: Any, case: Vector, comm: Communicator) -> None:
    x = own_array(case, comm.rank)
    expected = Wanted(*(chunk(whole, case.ranks, comm.rank + 1) for whole in (total(case), places(case))))
    cost = ring_cost(case, comm.rank, 1)
    check_call(comm, lambda comm: submission.ring_reduce_scatter(comm, x), x, expected, cost)


def check_allgather(submission: Any, case: Vector, comm: Communicator) -> None:
    """Here chunk k + 1 is brought by rank k alone, so a digit tells whose it is."""
    pieces = [chunk(own_array(case, rank), case.ranks, rank + 1) for rank in range(case.ranks)]
    x, expected = pieces[comm.rank].copy(), Wanted(np.concatenate(pieces[-1:] + pieces[:-1]), places(case))
    cost = ring_cost(case, comm.rank, 2)
    check_call(comm, lambda comm: submission.ring_allgather(comm, x, case.length), x, expected, cost)


def own_only(comm: Communicator, x: np.ndarray, *_: Any) -> np.ndarray:
    """A wrong answer to every task: nobody sends anything."""
    return x.copy()


def task(name: str, points: int, title: str, cases: Any, check: Any, *parts: Part) -> Task:
    broken = SimpleNamespace(**{name: own_only})
    return Task(name, points, title, cases, check, broken, examples=60, parts=parts)


def allreduce_task(
    name: str, points: int, title: str, cost: Callable[[Any, int], Cost], *parts: Part
) -> Task:
    return task(name, points, title, ARRAYS, sums(name, cost), *parts)


def two_rings(case: Any, rank: int) -> Cost:
    return ring_cost(case, rank, 1, 2)


def chunks_are_alike(case: Any) -> bool:
    return size(case) % case.ranks == 0


def power_of_two(case: Any) -> bool:
    return case.ranks.bit_count() == 1


RINGS = ("ring_reduce_scatter", "ring_allgather")
ALIKE = Part("where the ranks divide the elements", 0.4, chunks_are_alike)
SUPPLIED = Part(f"with {' and '.join(RINGS)} of the answers", 1.0, supplied=RINGS)
TWO = Part("for 1, 2 and 4 ranks", 0.5, power_of_two)

TASKS = (
    allreduce_task("gather_broadcast_allreduce", 15, "all-reduce by gather and broadcast", naive_cost),
    task("ring_reduce_scatter", 25, "reduce-scatter around a ring", VECTORS, check_reduce_scatter, ALIKE),
    task("ring_allgather", 15, "all-gather around a ring", VECTORS, check_allgather, ALIKE),
    allreduce_task("ring_allreduce", 15, "all-reduce by two rings", two_rings, SUPPLIED, ALIKE),
    allreduce_task("doubling_allreduce", 30, "all-reduce by recursive doubling", doubling_cost, TWO),
)
