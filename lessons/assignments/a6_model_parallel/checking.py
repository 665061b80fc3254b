"""What the checks of assignment a6 have in common: calls, arrays, messages and bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from minigrad_course.grading import Wrong
from minigrad_course.grading.restricted_comm import RestrictedComm

from backends.comm import Communicator, allreduce
from backends.comm.trace import Traced


class Call:
    """A layer's forward and backward function, called and checked on this rank."""

    def __init__(self, comm: Communicator, submission: Any, layer: str, *inputs: np.ndarray):
        let_sends_wait(comm)
        self.comm, self.submission, self.layer, self.inputs = comm, submission, layer, inputs
        self.traced = Traced(comm)
        self.offered = RestrictedComm(
            self.traced
        )  # one for both ways: the way back may use what the way there has kept

    def forward(
        self,
        expected: np.ndarray,
        nbytes: int,
        hints: Mapping[str, np.ndarray] | None = None,
        settings: Sequence[Any] = (),
    ) -> Any:
        """What it saved; ``nbytes`` is what all ranks together have to send."""
        before, name = copies(self.inputs), f"{self.layer}_forward"
        result = getattr(self.submission, name)(self.offered, *self.inputs, *settings)
        if type(result) is not tuple or len(result) != 2:
            raise Wrong(f"{name} returned {kind(result)}, not its result and what it saved")
        check_array(self.comm, result[0], expected, f"result of {name}", hints)
        unchanged(self.comm, name, self.inputs, before, result[:1])
        self.spent = check_bytes(self.comm, self.traced, name, nbytes)
        return result[1]

    def backward(
        self,
        saved: Any,
        g: np.ndarray,
        expected: Mapping[str, np.ndarray],
        nbytes: int,
        hints: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        """``expected`` are the gradients by the inputs' names, ``hints`` other values of the first."""
        before, name = copies((*self.inputs, g)), f"{self.layer}_backward"
        result = getattr(self.submission, name)(self.offered, saved, g)
        if type(result) is not tuple or len(result) != len(expected):
            raise Wrong(f"{name} returned {kind(result)}, not the gradients of {', '.join(expected)}")
        for actual, (what, right) in zip(result, expected.items(), strict=True):
            check_array(self.comm, actual, right, f"gradient of {what}", hints if what == "x" else None)
        unchanged(self.comm, name, (*self.inputs, g), before, result)
        check_bytes(self.comm, self.traced, name, nbytes, self.spent)


def check_array(
    comm: Communicator,
    actual: Any,
    expected: np.ndarray,
    what: str,
    hints: Mapping[str, np.ndarray] | None = None,
) -> None:
    """``hints`` are wrong values of which one can say what they are."""
    mine = f"rank {comm.rank}'s {what}"
    if type(actual) is not np.ndarray:
        raise Wrong(f"{mine} is {kind(actual)}: returned was no array")
    if (actual.dtype, actual.shape) != (expected.dtype, expected.shape):
        raise Wrong(
            f"{mine} is {actual.dtype} of shape {actual.shape}, "
            f"it should be {expected.dtype} of shape {expected.shape}"
        )
    if np.array_equal(actual, expected):
        return
    for text, other in (hints or {}).items():
        if np.array_equal(actual, other):
            raise Wrong(f"{mine} is {text}")
    at = tuple(int(i) for i in np.argwhere(actual != expected)[0])
    ratio = actual[at] / expected[at] if expected[at] else np.nan
    if ratio and expected.size > 1 and np.array_equal(actual, ratio * expected):
        raise Wrong(f"{mine} is {ratio:g} times what it should be")
    raise Wrong(f"{mine} is {actual[at]:g} at {at}, it should be {expected[at]:g}")


def unchanged(
    comm: Communicator,
    name: str,
    inputs: Sequence[np.ndarray],
    before: Sequence[np.ndarray],
    results: Sequence[np.ndarray],
) -> None:
    if not all(np.array_equal(x, y) for x, y in zip(inputs, before, strict=True)):
        raise Wrong(f"{name} changed its input on rank {comm.rank}: work on a copy")
    if any(np.may_share_memory(x, y) for x in inputs for y in results):
        raise Wrong(f"{name} returned its input's memory on rank {comm.rank}: return a new array")


def check_bytes(comm: Communicator, traced: Traced, name: str, expected: int, before: int = 0) -> int:
    """What all ranks together have sent, ``before`` less; all of what this rank has sent by now."""
    mine = traced.record.ledger.sent().bytes
    total = int(allreduce(comm, np.array([float(mine - before)]))[0])
    if total != expected:
        raise Wrong(
            f"the results are right, but in {name} the ranks sent {total} bytes in all, not {expected}"
        )
    return mine


def check_messages(comm: Communicator, traced: Traced, expected: Mapping[int, int]) -> None:
    """What this rank has sent to each other: one message of so many bytes, none for 0."""
    for rank, nbytes in expected.items():
        sent = traced.record.ledger.sent(rank)
        if sent != (right := (int(nbytes > 0), nbytes)):
            text = f"the result is right, but rank {comm.rank} sent rank {rank} "
            count = counted(sent.messages, "message")
            raise Wrong(f"{text}{count} of {sent.bytes} bytes together, not {right[0]} of {nbytes}")


def let_sends_wait(comm: Communicator) -> None:
    """Where ranks are threads, a send waits for its receiver, as MPI's does with a large message."""
    comm.use_synchronous_sends()


def once(x: np.ndarray, comm: Communicator) -> int:
    """The bytes of one all-reduce, over all ranks together."""
    return 2 * (comm.size - 1) * x.nbytes


def numbers(case: Any, which: int, *shape: int) -> np.ndarray:
    """Whole numbers from -9 to 9, never 0: sums are exact in any order, and what is left out shows."""
    rng = np.random.default_rng([case.seed, which])
    return (rng.integers(1, 10, shape) * rng.choice([-1, 1], shape)).astype(np.float64)


def cut(whole: np.ndarray, comm: Communicator, axis: int) -> np.ndarray:
    return np.array_split(whole, comm.size, axis)[comm.rank].copy()


def kind(x: Any) -> str:
    return "nothing" if x is None else type(x).__name__


def copies(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    return [x.copy() for x in arrays]


def counted(n: int, noun: str) -> str:
    return f"{n} {noun}{'' if n == 1 else 's'}"
