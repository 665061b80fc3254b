"""What the six parts of assignment a8 promise, as laws: they raise Wrong, in words, where it is broken."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from minigrad_course.grading import Wrong
from minigrad_course.grading.assignment import load_file

from backends.comm import Communicator
from backends.words import counted

comparing = load_file(Path(__file__).parent / "comparing.py", "comparing_of_a8")
apart, numbers = comparing.apart, comparing.numbers
same, unchanged = comparing.same, comparing.unchanged

# Each case says what an implementation, or a property of one, is called with on a rank, and has its law.


@dataclass(frozen=True)
class Samples:
    """Part 1: so many samples on each rank."""

    samples: tuple[int, ...]
    elements: int
    seed: int

    @property
    def ranks(self) -> int:
        return len(self.samples)

    def __str__(self) -> str:
        return (
            f"{counted(self.ranks, 'rank')} with samples {self.samples}, {counted(self.elements, 'element')}"
        )

    def data(self, rank: int) -> tuple[Any, ...]:
        n = self.samples[rank]
        return (numbers(self.seed, rank, shape=self.elements) * (n > 0), n)

    def law(self, mean_gradient: Any, comm: Communicator) -> None:
        (gradient, n), (before, _) = self.data(comm.rank), self.data(comm.rank)
        result = mean_gradient(comm, gradient, n)
        total = np.sum([g * n for g, n in map(self.data, range(self.ranks))], axis=0)
        same(result, total / max(sum(self.samples), 1), f"rank {comm.rank}'s gradient")
        unchanged(gradient, before, f"rank {comm.rank}'s input")
        apart(result, gradient, f"rank {comm.rank}'s gradient")


@dataclass(frozen=True)
class Traffic:
    """Part 2: messages to one rank; after each, the choice says which of those held is given back."""

    choices: tuple[int, ...]
    seed: int
    ranks = 1

    @property
    def given_back(self) -> tuple[int | None, ...]:
        messages, returns = [], []
        for i, choice in enumerate(self.choices):
            messages.append(i)
            returns.append(messages.pop((choice - 1) % len(messages)) if choice else None)
        return tuple(returns)

    def __str__(self) -> str:
        return f"{counted(len(self.choices), 'message')}, given back after each: {self.given_back}"

    def data(self, rank: int) -> tuple[Any, ...]:
        return [numbers(self.seed, i, shape=3) for i in range(len(self.choices))], self.given_back

    def law(self, make_inbox: Any, comm: Communicator) -> None:
        inbox, copies, wire = make_inbox(), {}, np.empty(3)
        messages, given_back = self.data(0)
        for i, message in enumerate(messages):
            wire[:] = message
            copies[i] = inbox.take(wire)
            unchanged(wire, message, "the transport's memory")
            wire[:] = np.nan  # as the transport uses it for something else
            for j, x in copies.items():
                same(x, messages[j], f"message {j}, after message {i} came,")
            if given_back[i] is not None:
                inbox.give_back(copies.pop(given_back[i]))


@dataclass(frozen=True)
class Tied:
    """Part 3: which ranks hold the weight."""

    has_copy: tuple[bool, ...]
    elements: int
    seed: int

    @property
    def ranks(self) -> int:
        return len(self.has_copy)

    @property
    def holders(self) -> tuple[int, ...]:
        return tuple(rank for rank, has_copy in enumerate(self.has_copy) if has_copy)

    def __str__(self) -> str:
        return f"{counted(self.ranks, 'rank')}, holders {self.holders}, {counted(self.elements, 'element')}"

    def data(self, rank: int) -> tuple[Any, ...]:
        if not self.has_copy[rank]:
            return None, None, 0.5, self.holders
        weight = numbers(self.seed, shape=self.elements)
        return weight, numbers(self.seed, rank, shape=self.elements), 0.5, self.holders

    def law(self, update_tied: Any, comm: Communicator) -> None:
        arguments, before = self.data(comm.rank), self.data(comm.rank)
        result, what = update_tied(comm, *arguments), f"rank {comm.rank}'s weight"
        if not self.has_copy[comm.rank]:
            if result is not None:
                raise Wrong(f"rank {comm.rank} holds no copy and got one: it should be None")
            return
        gradients = [self.data(rank)[1] for rank in self.holders]
        same(result, before[0] - 0.5 * np.sum(gradients, axis=0), what)
        for x, original in zip(arguments[:2], before[:2], strict=True):
            unchanged(x, original, f"rank {comm.rank}'s input")
            apart(result, x, what)


@dataclass(frozen=True)
class Stream:
    """Part 4: gradients one after another, of which k entries are sent."""

    size: int
    k: int
    steps: int
    seed: int
    ranks = 1

    def __str__(self) -> str:
        return f"{counted(self.steps, 'gradient')} of {counted(self.size, 'element')}, {self.k} sent"

    def data(self, rank: int) -> tuple[Any, ...]:
        return [numbers(self.seed, step, shape=self.size) for step in range(self.steps)], self.k

    def law(self, make_feedback: Any, comm: Communicator) -> None:
        feedback, waiting = make_feedback(self.size, self.k), np.zeros(self.size)
        for step, gradient in enumerate(self.data(0)[0]):
            v, before = waiting + gradient, gradient.copy()
            result = feedback.compress(gradient)
            if type(result) is not tuple or len(result) != 2:
                raise Wrong(f"compress returned {type(result).__name__}, not (indices, values)")
            indices = np.asarray(result[0])
            if indices.shape != (self.k,) or indices.dtype.kind not in "iu":
                raise Wrong(f"the indices are {result[0]!r:.60}, they should be {self.k} whole numbers")
            if len({*indices.tolist()} & {*range(self.size)}) != self.k:
                raise Wrong(f"the indices {indices} are not {self.k} different ones of 0 to {self.size - 1}")
            same(result[1], v[indices], f"gradient {step}'s values at {indices.tolist()}")
            waiting = v.copy()
            waiting[indices] = 0
            if abs(waiting).max() > abs(v[indices]).min():
                raise Wrong(
                    f"gradient {step}: of residual + gradient {v} the entries {indices} are not the largest"
                )
            same(feedback.residual, waiting, f"the residual after gradient {step}")
            unchanged(gradient, before, f"gradient {step}")


@dataclass(frozen=True)
class Sparse:
    """Part 5: k entries of a vector from each rank."""

    ranks: int
    size: int
    k: int
    seed: int

    def __str__(self) -> str:
        return f"{counted(self.ranks, 'rank')}, {self.k} of {counted(self.size, 'element')} each"

    def data(self, rank: int) -> tuple[Any, ...]:
        indices = np.random.default_rng((self.seed, rank)).permutation(self.size)[: self.k]
        return indices, numbers(self.seed, rank, shape=self.k), self.size

    def law(self, sparse_sum: Any, comm: Communicator) -> None:
        arguments, before = self.data(comm.rank), self.data(comm.rank)
        actual, expected = sparse_sum(comm, *arguments), np.zeros(self.size)
        for rank in range(self.ranks):
            indices, values, _ = self.data(rank)
            expected[indices] += values
        same(actual, expected, f"rank {comm.rank}'s sum")
        for x, copy in zip(arguments[:2], before[:2], strict=True):
            unchanged(x, copy, f"rank {comm.rank}'s input")


@dataclass(frozen=True)
class Rows:
    """Part 6: so many elements on each rank, and so many steps with one filter."""

    elements: tuple[int, ...]
    count: int
    seed: int

    @property
    def ranks(self) -> int:
        return len(self.elements)

    def __str__(self) -> str:
        return f"{counted(self.ranks, 'rank')} with elements {self.elements}, {counted(self.count, 'step')}"

    def whole(self, step: int) -> np.ndarray:
        return numbers(self.seed, step, shape=(2, sum(self.elements)))

    def piece(self, rank: int) -> slice:
        start = sum(self.elements[:rank])
        return slice(start, start + self.elements[rank])

    def data(self, rank: int) -> tuple[Any, ...]:
        pieces = [self.whole(step)[:, self.piece(rank)].copy() for step in range(self.count)]
        return numbers(self.seed, shape=3), [(x, g) for x, g in pieces]

    def law(self, make_filter: Any, comm: Communicator) -> None:
        weight, steps = self.data(comm.rank)
        split, actual = make_filter(comm, weight), []
        for x, g in steps:
            y, back = split.forward(x), split.backward(g)
            if type(back) is not tuple or len(back) != 2:
                raise Wrong(f"backward returned {type(back).__name__}, not (gradient of x, of w)")
            actual.append((y, *back))
        mine = self.piece(comm.rank)
        for step, outputs in enumerate(actual):
            xs, gs = self.whole(step)
            patches = windows(xs)
            expected = (
                (weight @ patches)[mine],
                (weight[::-1] @ windows(gs))[mine],
                patches[:, mine] @ gs[mine],
            )
            for what, a, b in zip(
                ("y", "gradient of x", "part of w's gradient"), outputs, expected, strict=True
            ):
                same(a, b, f"rank {comm.rank}'s {what} in step {step}")
        for array, before in zip(steps, self.data(comm.rank)[1], strict=True):
            unchanged(np.array(array), np.array(before), f"rank {comm.rank}'s x or g")


def windows(x: np.ndarray) -> np.ndarray:
    """The element before each, each, and the one after it."""
    p = np.pad(x, 1)
    return np.stack([p[:-2], p[1:-1], p[2:]])
