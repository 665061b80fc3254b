"""What assignment a3 is held to. How steps of training are watched is in training.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hypothesis.strategies as st
import numpy as np
from minigrad_course.grading import Part, Task, Wrong
from minigrad_course.grading.array_checks import check_equal, enumeration
from minigrad_course.grading.assignment import load_file
from minigrad_course.grading.restricted_comm import RestrictedComm

from backends import laws
from backends.comm import Communicator
from backends.comm.trace import Traced
from backends.words import counted
from minigrad import ops
from minigrad.testing import c_order, fortran_order, with_gaps

training = load_file(Path(__file__).parent / "training.py", "training_of_a3")
ORDERS = {"C order": c_order, "Fortran order": fortran_order, "with gaps": with_gaps}


# Cases


@dataclass(frozen=True)
class Cut:
    """Samples to share."""

    n: int
    parts: int
    ranks = 1

    def __str__(self) -> str:
        return f"{counted(self.n, 'sample')} among {counted(self.parts, 'rank')}"


@dataclass(frozen=True)
class Parameters:
    """Some arrays on each rank, which lie in memory in some order."""

    ranks: int
    shapes: tuple[tuple[int, ...], ...]
    order: str
    seed: int

    def __str__(self) -> str:
        return f"{counted(self.ranks, 'rank')}, parameters of shape {enumeration(self.shapes)}, {self.order}"


@dataclass(frozen=True)
class Sizes:
    """Parameters' bytes, and how many a bucket holds."""

    sizes: tuple[int, ...]
    most: int
    ranks = 1

    def __str__(self) -> str:
        return f"parameters of {enumeration(self.sizes)} bytes, buckets of at most {self.most}"


# A counter-example shrinks to the first of a list: a usual size, where the unusual ones are not to blame.
SIDES = st.sampled_from([2, 3, 1, 4, 0])
SHAPES = st.lists(st.lists(SIDES, max_size=3).map(tuple), min_size=1, max_size=4).map(tuple)
SEEDS = st.integers(0, 2**16)
SHARES = st.lists(st.sampled_from([2, 3, 1, 0, 4, 5]), min_size=1, max_size=5).filter(any).map(tuple)
MOST = st.sampled_from([64, 32, 100, 8, 112, 1000])
CUTS = st.builds(Cut, st.integers(0, 40), st.integers(1, 9))
PARAMETERS = st.builds(Parameters, st.integers(1, 5), SHAPES, st.sampled_from(list(ORDERS)), SEEDS)
BYTES = st.lists(st.sampled_from([8, 16, 24, 40, 80]), min_size=1, max_size=8).map(tuple)
SIZES = st.builds(Sizes, BYTES, st.sampled_from([40, 24, 16, 64, 100, 8, 320]))


# Checks


def check_share(submission: Any, case: Cut, comm: Communicator) -> None:
    """The shares follow one another from 0 to n, and are even."""
    end, counts = 0, []
    for rank in range(case.parts):
        result = submission.share(case.n, case.parts, rank)
        if not isinstance(result, tuple) or not all(isinstance(i, int | np.integer) for i in result):
            raise Wrong(f"rank {rank}'s share should be a pair of whole numbers (start, stop)")
        if len(result) != 2:
            raise Wrong(
                f"rank {rank}'s share has {counted(len(result), 'number')}, it should have 2: start and stop"
            )
        start, stop = (int(i) for i in result)
        if start != end or stop < start:
            where = f"where rank {rank - 1}'s ends" if rank else "where the batch begins"
            raise Wrong(f"rank {rank} has samples {start} to {stop}, it should begin at {end}, {where}")
        counts.append(stop - start)
        end = stop
    if end != case.n:
        raise Wrong(f"the shares end at {end}, it should be {case.n}")
    if max(counts) - min(counts) > 1:
        raise Wrong(
            f"the ranks have {enumeration(counts)} samples: their numbers should differ by at most one"
        )


def check_broadcast(submission: Any, case: Parameters, comm: Communicator) -> None:
    """Rank 0's numbers are in the arrays of all, by one message to each other rank."""

    def values(rank: int) -> list[np.ndarray]:
        rng = np.random.default_rng([case.seed, rank])
        return [ORDERS[case.order](rng.normal(size=shape)) for shape in case.shapes]

    comm.use_synchronous_sends()  # so that threads wait for their receivers, as large messages of MPI do
    mine, expected, traced, me = values(comm.rank), values(0), Traced(comm), f"rank {comm.rank}"
    submission.broadcast_parameters(RestrictedComm(traced), list(mine))
    for i, (actual, right) in enumerate(zip(mine, expected, strict=True)):
        if comm.rank and actual.size and np.array_equal(actual, values(comm.rank)[i]):
            raise Wrong(f"{me}'s parameter {i} is as it was: write into the array itself, x[...] = ...")
        check_equal(f"{me}'s parameter {i}", actual, right)
    messages, nbytes = traced.record.ledger.sent()
    others = 0 if comm.rank else comm.size - 1
    if messages != others:
        raise Wrong(f"the parameters are right, but {me} sent {counted(messages, 'message')}, not {others}")
    if nbytes != others * sum(x.nbytes for x in mine):
        raise Wrong(
            f"the parameters are right, but {me} sent {nbytes} bytes, not all parameters once to each"
        )


def check_buckets(submission: Any, case: Sizes, comm: Communicator) -> None:
    sizes = list(case.sizes)
    actual = submission.buckets(sizes, case.most)
    if sizes != list(case.sizes):
        raise Wrong("the list of sizes was changed: work on a copy")
    if type(actual) is not list or not all(type(bucket) is list for bucket in actual):
        raise Wrong("buckets should be returned as a list of lists of parameter numbers")
    expected: list[list[int]] = []
    for i in reversed(range(len(sizes))):
        if not expected or sum(sizes[j] for j in expected[-1]) + sizes[i] > case.most:
            expected.append([])
        expected[-1].append(i)
    for k, right in enumerate(expected):
        if k >= len(actual) or actual[k] != right:
            has = f"is {actual[k]}" if k < len(actual) else "is missing"
            raise Wrong(f"bucket {k} {has}, it should be {right}")
    if len(actual) != len(expected):
        raise Wrong(f"there are {len(actual)} buckets, it should be {len(expected)}")


def trains(backend: Any) -> Callable[[Any, Any, Communicator], None]:
    """The check of a step: three batches with momentum, and after each everything is as on one machine."""

    def check(submission: Any, case: Any, comm: Communicator) -> None:
        laws.trains_like_serial(
            lambda comm: backend(comm, submission, case),
            comm,
            training.Net,
            ops.cross_entropy,
            case.batches(3),
            bound=1e-10,
        )

    return check


# Wrong answers, one to each task


class Local:
    """A reducer that sums nothing."""

    def __init__(self, comm: Any, shapes: Any, buckets: Any):
        self.gradients = [np.zeros(shape) for shape in shapes]

    def on_grad(self, number: int, gradient: np.ndarray) -> None:
        self.gradients[number] = gradient.copy()

    def finish(self) -> list[np.ndarray]:
        return self.gradients


def own_only(comm: Any, parameters: Any, backward: Any, x: Any, y: Any, n: int) -> Any:
    return backward(x, y) if len(x) else (0.0, [np.zeros_like(p) for p in parameters])


def task(
    name: str, points: int, title: str, cases: Any, check: Any, broken: Any, examples: int, *parts: Part
) -> Task:
    wrong = SimpleNamespace(**{name: broken})
    return Task(name, points, title, cases, check, wrong, examples=examples, parts=parts)


EVEN = Part("where all ranks have as many samples", 0.5, lambda case: len(set(case.sizes)) == 1)
NONEMPTY = Part("where every rank has samples", 0.5, lambda case: all(case.sizes))

TASKS = (
    task("share", 10, "shares of a batch", CUTS, check_share, lambda n, ranks, rank: (0, n), 100),
    task("broadcast_parameters", 15, "equal parameters", PARAMETERS, check_broadcast, lambda *_: None, 40),
    task(
        "gradients",
        30,
        "the gradient of the whole batch",
        st.builds(training.Shares, SHARES, SEEDS),
        trains(training.Weighted),
        own_only,
        40,
        EVEN,
    ),
    task("buckets", 15, "buckets", SIZES, check_buckets, lambda sizes, most: [list(range(len(sizes)))], 100),
    task(
        "Reducer",
        30,
        "sums under way while backward goes on",
        st.builds(training.Shares, SHARES, SEEDS, MOST),
        trains(training.Overlapped),
        Local,
        40,
        NONEMPTY,
    ),
)
