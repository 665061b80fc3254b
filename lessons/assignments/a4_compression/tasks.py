"""What assignment a4 is held to: nothing is lost, to the last bit, and so many bytes are sent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from minigrad_course.grading import Part, Task, Wrong
from minigrad_course.grading.array_checks import check_equal, check_like, check_private, check_unchanged
from minigrad_course.grading.assignment import load_file
from minigrad_course.grading.restricted_comm import RestrictedObject

from backends.comm import Communicator, allreduce
from backends.comm.collectives import allgather
from backends.words import counted

cases = load_file(Path(__file__).parent / "cases.py", "cases_of_a4")
entries = cases.entries

STEPS = 4
Choose = Callable[[np.ndarray], np.ndarray]


# Checks


def check_selection(submission: Any, case: Any, comm: Communicator) -> None:
    """Whole numbers from -6 to 6, so there are zeros and entries of one size."""
    v = case.rng.integers(-6, 7, case.n).astype(case.dtype)
    v.flags.writeable = False
    rest = chosen_by("top_k", submission.top_k(v, case.k), v, min(case.k, case.n))
    taken = abs(np.delete(v, rest))
    if taken.size and rest.size and taken.min() < abs(v[rest]).max():
        sizes = f"one of size {taken.min():g} and left one of {abs(v[rest]).max():g}"
        raise Wrong(f"of {v.tolist()} top_k took {sizes}")
    for threshold in (2.0, 0.0, 2.5):
        expected = np.flatnonzero(abs(v) > threshold)
        what = f"above_threshold({v.tolist()}, {threshold:g})"
        rest = chosen_by(what, submission.above_threshold(v, threshold), v, expected.size)
        if set(np.delete(np.arange(v.size), rest)) != set(expected):
            raise Wrong(f"{what} should have chosen the entries {expected.tolist()}")


def chosen_by(what: str, result: Any, v: np.ndarray, count: int) -> np.ndarray:
    """The indices that are not in ``result``; raises Wrong unless that has ``count`` different ones."""
    check_like(f"what {what} returned", result, (np.size(result),), np.int32)
    if result.size != count:
        raise Wrong(f"{what} chose {entries(result.size)}, it should be {count}")
    if np.unique(result).size != result.size or not all(0 <= i < v.size for i in result):
        raise Wrong(f"{what} chose {result.tolist()}: each of 0 to {v.size - 1} at most once")
    return np.setdiff1d(np.arange(v.size), result)


def check_messages(submission: Any, case: Any, comm: Communicator) -> None:
    """Bytes are as the text says, so what one packs another can unpack; values have gaps in memory."""
    rng = case.rng
    values = rng.normal(size=2 * case.k).astype(case.dtype)[::2]
    indices = rng.permutation(1000)[: case.k].astype(rng.choice(["int32", "int64"]))
    copies = [values.copy(), indices.copy()]
    expected = np.frombuffer(values.tobytes() + indices.astype(np.int32).tobytes(), np.uint8)
    message = submission.pack(values, indices)
    size = f"{case.k} values of {values.itemsize} bytes, {case.k} indices of 4"
    check_like("what pack returned", message, (np.size(message),), np.uint8)
    if message.size != expected.size:
        raise Wrong(f"pack made {counted(message.size, 'byte')}, it should be {expected.size}: {size}")
    inputs = {"values": values, "indices": indices}
    check_unchanged(inputs, copies)
    check_private("what pack returned", message, inputs)
    if not np.array_equal(message, expected):
        raise Wrong(f"the message is not {size}, in this order")
    actual = submission.unpack(expected.copy(), np.dtype(case.dtype))
    if not isinstance(actual, tuple | list) or len(actual) != 2:
        raise Wrong("unpack should return (values, indices)")
    for what, x, right in zip(
        ("values", "indices"), actual, (copies[0], copies[1].astype(np.int32)), strict=True
    ):
        check_like(f"what unpack returned as {what}", x, right.shape, right.dtype)
        check_equal(f"what unpack returned as {what}", x, right)


def check_feedback(submission: Any, case: Any, comm: Communicator) -> None:
    """In every step what is sent and what is kept are the bits of what had accumulated, each entry in one."""
    rng, error = case.rng, np.zeros(case.n, case.dtype)
    for step in range(1, STEPS + 1):
        g = rng.normal(size=case.n).astype(case.dtype)
        v, arguments = error + g, []
        indices = largest(v, case.k)

        def choose(
            x: Any, v: Any = v, arguments: Any = arguments, indices: Any = indices, step: int = step
        ) -> Any:
            check_like(f"what choose is given in step {step}", x, v.shape, v.dtype)
            check_equal(f"what choose is given in step {step}", x, v)
            arguments.append(x)
            return indices.copy()

        inputs, before = {"error": error, "g": g}, [error.copy(), g.copy()]
        result = submission.feedback(error, g, choose)
        check_unchanged(inputs, before)
        if len(arguments) != 1:
            raise Wrong(f"choose was called {counted(len(arguments), 'time')}, it should be 1")
        if not isinstance(result, tuple | list) or len(result) != 2:
            raise Wrong("feedback should return (sent, error)")
        for what, x in zip(("sent", "the new error"), result, strict=True):
            check_like(f"{what} of step {step}", x, v.shape, v.dtype)
            check_private(f"{what} of step {step}", x, inputs)
        sent, error = result
        check_private("the new error", error, {"sent": sent})
        for i in range(case.n):
            if (sent[i], error[i]) != ((v[i], 0) if i in indices else (0, v[i])):
                raise Wrong(
                    f"step {step}, entry {i}{'' if i in indices else ' not'} chosen: {float(v[i])!r} had "
                    f"accumulated, {float(sent[i])!r} is sent and {float(error[i])!r} kept"
                )


def largest(v: np.ndarray, k: int) -> np.ndarray:
    """The k entries of largest size, the first ones among equals, in no special order."""
    return np.argsort(-abs(v), kind="stable")[:k][::-1].astype(np.int32)


def check_exchange(submission: Any, case: Any, comm: Communicator) -> None:
    """The bits of the sum in the order of ranks, by one all-gather of exactly the values and indices."""
    vectors, chosen = [], []
    for rank, k in enumerate(case.counts):
        rng = np.random.default_rng([case.seed, rank])
        vectors.append(rng.normal(size=case.n).astype(case.dtype))
        chosen.append(rng.permutation(case.n)[:k].astype(np.int32))
    expected = np.zeros(case.n, case.dtype)
    for v, indices in zip(vectors, chosen, strict=True):
        expected[indices] += v[indices]
    v, indices, me, calls = vectors[comm.rank], chosen[comm.rank], f"rank {comm.rank}", []
    inputs, before = {f"{me}'s v": v, f"{me}'s indices": indices}, [v.copy(), indices.copy()]

    def gather(x: Any) -> list[np.ndarray]:
        calls.append(x)
        if len(calls) > 1:
            raise Wrong(f"{me} calls allgather twice: values and indices go in one message")
        if type(x) is not np.ndarray or x.ndim != 1:
            raise Wrong(f"{me} gives allgather a {type(x).__name__}, it should be a one-dimensional array")
        right = indices.size * (v.itemsize + 4)
        if x.nbytes != right:
            raise Wrong(
                f"{me} sends {counted(x.nbytes, 'byte')} for {entries(indices.size)}, it should be {right}"
            )
        return [part.copy() for part in allgather(comm, x)]

    offered = RestrictedObject("comm", {"rank": comm.rank, "size": comm.size}, {"allgather": gather})
    actual = submission.exchange(offered, v, indices)
    if not calls:
        raise Wrong(f"{me} did not call allgather: the others wait for it")
    check_unchanged(inputs, before)
    check_like(f"{me}'s sum", actual, v.shape, v.dtype)
    check_private(f"{me}'s sum", actual, inputs)
    check_equal(f"{me}'s sum", actual, expected)


def check_momentum(submission: Any, case: Any, comm: Communicator) -> None:
    """Steps of whole numbers with momentum in quarters, which are exact, against both limits."""
    m, rng, me = case.momentum, np.random.default_rng([case.seed, comm.rank]), f"rank {comm.rank}"
    mine = submission.Momentum(case.n, lambda v: largest(v, case.k), m, case.masking)
    velocity, error = np.zeros(case.n), np.zeros(case.n)
    w, dense, dense_velocity = np.zeros(case.n), np.zeros(case.n), np.zeros(case.n)
    for step in range(1, STEPS + 1):
        g = rng.integers(-50, 50, case.n).astype(float)
        original = g.copy()
        sent = mine.step(g)
        check_like(f"what {me} sends in step {step}", sent, g.shape, g.dtype)
        check_unchanged({f"{me}'s g": g}, [original])
        check_private(f"what {me} sends in step {step}", sent, {"g": g})
        w -= allreduce(comm, sent)
        dense_velocity = (0 if case.masking else m) * dense_velocity + allreduce(comm, g)
        dense -= dense_velocity
        if case.k == case.n:  # everything is sent
            kind = "SGD without momentum, as masking stops what is sent" if case.masking else "momentum SGD"
            check_equal(f"all is sent, so this should be {kind}: after step {step} w", w, dense)
        velocity = m * velocity + g
        v = error + velocity
        chosen = np.isin(np.arange(case.n), largest(v, case.k))
        check_equal(f"what {me} sends in step {step}", sent, v * chosen)
        error = v * ~chosen
        if case.masking:
            velocity = velocity * ~chosen


def task(name: str, points: int, title: str, cases: Any, check: Any, examples: int, **broken: Any) -> Task:
    return Task(name, points, title, cases, check, SimpleNamespace(**broken), examples=examples)


class Forgetful:
    """A wrong answer to task 5: nothing is kept."""

    def __init__(self, n: int, choose: Choose, momentum: float, masking: bool):
        self.choose = choose

    def step(self, g: np.ndarray) -> np.ndarray:
        return g * np.isin(np.arange(g.size), self.choose(g))


def first_entries(v: np.ndarray, k: float) -> np.ndarray:
    return np.arange(min(int(k), v.size), dtype=np.int32)


def send_all(error: np.ndarray, g: np.ndarray, choose: Choose) -> tuple[np.ndarray, np.ndarray]:
    choose(error + g)
    return error + g, 0 * g


TASKS = (
    task(
        "top_k",
        15,
        "what is sent: top-k, threshold",
        cases.VECTORS,
        check_selection,
        100,
        top_k=first_entries,
        above_threshold=first_entries,
    ),
    task("pack", 15, "a message", cases.MESSAGES, check_messages, 60, pack=lambda values, indices: values),
    task("feedback", 20, "what is kept", cases.VECTORS, check_feedback, 100, feedback=send_all),
    task(
        "exchange",
        20,
        "the sum over ranks",
        cases.SENT,
        check_exchange,
        60,
        exchange=lambda comm, v, indices: v,
    ),
    replace(
        task(
            "Momentum", 30, "momentum before selection", cases.STEPPED, check_momentum, 60, Momentum=Forgetful
        ),
        parts=(Part("without masking", 0.5, lambda case: not case.masking),),
    ),
)
