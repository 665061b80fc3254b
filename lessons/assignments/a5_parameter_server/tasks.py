"""What assignment a5 is held to: every message of workers and servers, and the exact sum in the end."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hypothesis.strategies as st
import numpy as np
from minigrad_course.grading import Part, Task, Wrong
from minigrad_course.grading.array_checks import enumeration
from minigrad_course.grading.assignment import load_file
from minigrad_course.grading.restricted_comm import POINT_TO_POINT, RestrictedComm

from backends.comm import Communicator, allreduce
from backends.comm.trace import Traced

script = load_file(Path(__file__).parent / "script.py", "script_of_a5")
Vector, Job, BoundedJob = script.Vector, script.Job, script.BoundedJob
Watched, counted, cuts = script.watched.Watched, script.counted, script.cuts


CALLS = (*POINT_TO_POINT, "recv_any")
RATE = 0.5  # exact in float64, as are the whole numbers that all data are made of

STEPS = st.lists(st.integers(0, 3), min_size=1, max_size=3).map(tuple)


ELEMENTS, SEEDS = st.sampled_from([2, 3, 1, 5, 0, 7, 8]), st.integers(0, 2**16)


def jobs(kind: Any) -> st.SearchStrategy[Any]:
    return st.builds(kind, STEPS, st.integers(1, 2), ELEMENTS, st.integers(0, 2), SEEDS)


# Task 1


def check_cut(submission: Any, case: Any, comm: Communicator) -> None:
    actual, expected = submission.cut(case.elements, case.servers), cuts(case.elements, case.servers)
    if not isinstance(actual, list) or not all(isinstance(part, slice) for part in actual):
        raise Wrong(f"cut returned {actual!r}, not a list of slices")
    if len(actual) != case.servers:
        raise Wrong(f"cut returned {counted(len(actual), 'slice')}")
    for server, (part, right) in enumerate(zip(actual, expected, strict=True)):
        if (part.start, part.stop, part.step or 1) != (right.start, right.stop, 1):
            raise Wrong(f"server {server} holds {part}, it should be {right}")


# Task 2: the submission's workers, and servers whose answers are written down beforehand


def check_work(submission: Any, case: Any, comm: Communicator) -> None:
    let_sends_wait(comm)
    if comm.rank >= case.workers:
        script.answer_by_script(comm, case)
        return
    me, calls, start = f"worker {comm.rank}", 0, case.start()
    expected = [start, *(case.answer(comm.rank, step) for step in range(case.steps[comm.rank]))]

    def gradient(parameters: Any) -> np.ndarray:
        nonlocal calls
        calls += 1
        if calls == len(expected):
            raise Wrong(f"{me} computes gradient number {calls}; it has {calls - 1} steps to make")
        same(parameters, expected[calls - 1], f"{me} computes gradient number {calls} of")
        return case.gradient(comm.rank, calls - 1)

    actual = submission.work(
        RestrictedComm(comm, CALLS), case.workers, start, case.steps[comm.rank], gradient
    )
    if calls < len(expected) - 1:
        raise Wrong(f"{me} computed {counted(calls, 'gradient')}, not {len(expected) - 1}")
    same(actual, expected[-1], f"{me} returned")
    new_memory(me, actual, start, case.start())


# Tasks 3 and 4: the submission's servers, and workers whose gradients are written down beforehand


def check_serve(submission: Any, case: Any, comm: Communicator, bounded: bool) -> None:
    let_sends_wait(comm)
    if comm.rank < case.workers:
        script.push_by_script(comm, case)
        return
    bound = case.bound if bounded else None
    place = case.places()[comm.rank - case.workers]
    part = case.start()[place]
    watch = Watched(comm, case.workers, part, RATE, bound)
    if bounded:
        result = submission.serve_bounded(RestrictedComm(watch, CALLS), case.workers, part, RATE, bound)
    else:
        result = submission.serve(RestrictedComm(watch, CALLS), case.workers, part, RATE)
    if watch.clocks:
        raise Wrong(f"{watch.me} returned, but worker {min(watch.clocks)} has not ended")
    if type(result) is not tuple or len(result) != 2:
        raise Wrong(f"{watch.me} returned {type(result).__name__}, not its part and the staleness")
    outcome, staleness = result
    same(outcome, watch.weights, f"{watch.me} returned")
    new_memory(watch.me, outcome, part, case.start()[place])
    if not isinstance(staleness, dict):
        raise Wrong(f"{watch.me}'s staleness is {type(staleness).__name__}, not a dictionary")
    if {age: n for age, n in staleness.items() if n} != watch.staleness:
        raise Wrong(f"{watch.me} counted staleness {dict(staleness)}, it was {dict(watch.staleness)}")


# Task 5: all is the submission's


def check_train(submission: Any, case: Any, comm: Communicator) -> None:
    let_sends_wait(comm)
    start, applied, computed = case.start(), np.zeros(case.elements), 0
    is_worker, server = comm.rank < case.workers, comm.rank - case.workers
    me = f"worker {comm.rank}" if is_worker else f"server {server}"
    own_end = comm if is_worker else Watched(comm, *part_of(case, server), RATE, case.bound)
    traced = Traced(own_end)

    def gradient(parameters: Any) -> np.ndarray:
        nonlocal computed
        right_kind(parameters, case.elements, f"{me} computes the gradient of")
        g = slope(case, comm.rank, computed, parameters)
        computed += 1
        applied[:] += g
        return g

    steps = case.steps[comm.rank] if is_worker else 0
    own = gradient if is_worker else None
    offered = RestrictedComm(traced, CALLS)
    actual = submission.train(offered, case.workers, start, steps, own, RATE, case.bound)
    if computed != steps:
        raise Wrong(f"{me} computed {counted(computed, 'gradient')}, not {steps}")
    right_kind(actual, case.elements, f"{me} returned")
    expected, what = case.start() - RATE * allreduce(comm, applied), f"{me} returned"
    same(actual, expected, what, "the start less the rate times the sum of all gradients")
    if case.bound == 0 or case.workers == 1:
        same(actual, trained_in_step(case), what, "serial training, as nobody is ahead")
    new_memory(me, actual, start, case.start())
    messages, nbytes = traced.record.ledger.sent()
    right = worker_cost(case, steps) if is_worker else server_cost(case, server)
    if (messages, nbytes) != right:
        raise Wrong(
            f"the result is right, but {me} sent {counted(messages, 'message')} of {nbytes} bytes "
            f"together, not {right[0]} of {right[1]}"
        )


def part_of(case: Any, server: int) -> tuple[int, np.ndarray]:
    return case.workers, case.start()[case.places()[server]]


def slope(case: Any, worker: int, step: int, parameters: np.ndarray) -> np.ndarray:
    """A gradient that depends on the parameters, exactly."""
    return case.gradient(worker, step) + parameters % 5


def trained_in_step(case: Any) -> np.ndarray:
    """What one machine makes of it, each step with all workers that have so many."""
    x = case.start()
    for step in range(max(case.steps)):
        there = [worker for worker, steps in enumerate(case.steps) if steps > step]
        x = x - RATE * sum(slope(case, worker, step, x) for worker in there)
    return x


def worker_cost(case: Any, steps: int) -> tuple[int, int]:
    return case.servers * (steps + 1), 8 * steps * (case.elements + case.servers)


def server_cost(case: Any, server: int) -> tuple[int, int]:
    place = case.places()[server]
    length, others = place.stop - place.start, case.ranks - 1
    return sum(case.steps) + others, 8 * (sum(case.steps) * (1 + length) + others * length)


# What the checks have in common


def let_sends_wait(comm: Communicator) -> None:
    """Where ranks are threads, a send waits for its receiver, as MPI's does with a large message."""
    comm.use_synchronous_sends()


def right_kind(result: Any, elements: int, what: str) -> None:
    if type(result) is not np.ndarray:
        raise Wrong(f"{what} {'nothing' if result is None else type(result).__name__}, not an array")
    if (result.dtype, result.shape) != (np.float64, (elements,)):
        raise Wrong(f"{what} {result.dtype} of shape {result.shape}, not float64 of shape {(elements,)}")


def same(actual: Any, expected: np.ndarray, what: str, why: str = "") -> None:
    right_kind(actual, expected.size, what)
    if not np.array_equal(actual, expected):
        raise Wrong(f"{what} {list(actual)}, it should be {list(expected)}{why and f': {why}'}")


def new_memory(me: str, outcome: np.ndarray, argument: np.ndarray, before: np.ndarray) -> None:
    if not np.array_equal(argument, before):
        raise Wrong(f"{me}'s input was changed: work on a copy")
    if np.may_share_memory(outcome, argument):
        raise Wrong(f"{me}'s result is the input's memory: return a new array")


def task(name: str, points: int, title: str, cases: Any, check: Any, broken: Any, *parts: Part) -> Task:
    return Task(name, points, title, cases, check, SimpleNamespace(**{name: broken}), parts=parts)


def with_answers(*names: str) -> Part:
    return Part(f"with {enumeration(names)} of the answers", 1.0, supplied=names)


def nobody_serves(comm: Any, workers: int, part: np.ndarray, *_: Any) -> Any:
    """A wrong answer to tasks 2 to 5: nobody sends anything."""
    return part.copy()


VECTORS = st.builds(Vector, st.sampled_from([7, 4, *range(12)]), st.integers(1, 5))


TASKS = (
    task("cut", 10, "a vector cut over servers", VECTORS, check_cut, lambda n, s: [slice(0, n)] * s),
    task(
        "work", 25, "a worker's pushes and pulls", jobs(Job), check_work, nobody_serves, with_answers("cut")
    ),
    task(
        "serve", 25, "an asynchronous server", jobs(Job), partial(check_serve, bounded=False), nobody_serves
    ),
    task(
        "serve_bounded",
        25,
        "a server with bounded staleness",
        jobs(BoundedJob),
        partial(check_serve, bounded=True),
        nobody_serves,
    ),
    task(
        "train",
        15,
        "all together, to a clean end",
        jobs(BoundedJob),
        check_train,
        nobody_serves,
        with_answers("cut", "work", "serve_bounded"),
    ),
)
