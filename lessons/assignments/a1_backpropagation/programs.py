"""What the tape of assignment a1 is held to, over drawn programs; tasks.py asks for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import hypothesis.strategies as st
import numpy as np
from minigrad_course.grading import Wrong

from backends.comm import Communicator
from backends.laws import integers

SIZE = 3  # elements of every array


def add(x: np.ndarray, y: np.ndarray) -> Any:
    return x + y, (lambda g: g, lambda g: g)


def subtract(x: np.ndarray, y: np.ndarray) -> Any:
    return x - y, (lambda g: g, lambda g: -g)


def multiply(x: np.ndarray, y: np.ndarray) -> Any:
    return x * y, (lambda g: g * y, lambda g: g * x)


def scale(x: np.ndarray, *, by: float) -> Any:
    return x * by, (lambda g: g * by,)


OPS = {"+": add, "-": subtract, "*": multiply, "neg": scale}


@dataclass(frozen=True)
class Program:
    """Inputs, and steps that make new values of values: an op, and its operands by number.

    ``is_leaf`` says which inputs are leaves; the others are constants. The last value is then negated
    ``more`` times.
    """

    is_leaf: list[bool]
    drawn: list[tuple[str, int, int]]
    more: int
    seed: int
    ranks: int = 1

    def steps(self) -> list[tuple[str, tuple[int, ...]]]:
        count, operations = len(self.is_leaf), []
        for sign, i, j in self.drawn:
            operands = (i % (count + len(operations)), j % (count + len(operations)))
            operations.append((sign, operands[:1] if sign == "neg" else operands))
        return operations + [("neg", (count + len(operations) + i - 1,)) for i in range(self.more)]

    def __str__(self) -> str:
        names = [f"{'leaf' if leaf else 'constant'} v{i}" for i, leaf in enumerate(self.is_leaf)]
        for k, (sign, operands) in enumerate(self.steps()[: len(self.drawn)], len(names)):
            total = f" {sign} ".join(f"v{i}" for i in operands)
            names.append(f"v{k} = {'-' if sign == 'neg' else ''}{total}")
        return "; ".join([*names, *([f"negated {self.more} times"] if self.more else [])])


PROGRAMS = st.builds(
    Program,
    st.lists(st.booleans(), min_size=1, max_size=4).map(lambda constants: [not c for c in constants]),
    st.lists(st.tuples(st.sampled_from(list(OPS)), st.integers(0, 9), st.integers(0, 9)), max_size=6),
    st.sampled_from([*[0] * 15, 1200]),
    st.integers(0, 2**16),
)


class Dual(NamedTuple):
    """A value, and how fast it changes when one leaf does: differentiation forwards is the oracle."""

    value: Any
    slope: Any


DUALS = {
    "+": lambda x, y: Dual(x.value + y.value, x.slope + y.slope),
    "-": lambda x, y: Dual(x.value - y.value, x.slope - y.slope),
    "*": lambda x, y: Dual(x.value * y.value, x.slope * y.value + x.value * y.slope),
    "neg": lambda x, _: Dual(-x.value, -x.slope),
}


def forward(program: Program, inputs: Sequence[np.ndarray], leaf: int) -> list[Dual]:
    """All values, and their slopes along one leaf."""
    values = [Dual(x, np.full(SIZE, float(i == leaf))) for i, x in enumerate(inputs)]
    for sign, operands in program.steps():
        x, y = values[operands[0]], values[operands[-1]]
        values.append(DUALS[sign](x, y))
    return values


def needed(program: Program) -> tuple[set[int], set[int]]:
    """The values that lead to the last one, and those that some leaf leads to."""
    count, steps = len(program.is_leaf), program.steps()
    used, moved = {count + len(steps) - 1}, {i for i, leaf in enumerate(program.is_leaf) if leaf}
    for k, (_, operands) in enumerate(steps, count):
        if moved & set(operands):
            moved.add(k)
    for k, (_, operands) in reversed(list(enumerate(steps, count))):
        if k in used:
            used |= set(operands)
    return used, moved


def check_tape(submission: Any, program: Program, comm: Communicator) -> None:
    """Gradients are those of forward differentiation, by one call of each pullback that leads to a leaf."""
    count, steps = len(program.is_leaf), program.steps()
    inputs = [integers(SIZE, program.seed + i) % 3 - 1 for i in range(count)]
    copies = [x.copy() for x in inputs]
    calls: Counter[tuple[int, int]] = Counter()

    def counted(k: int, sign: str) -> Any:
        """The op of value k, whose calls and whose pullbacks' calls are counted."""

        def op(*arrays: np.ndarray, **settings: Any) -> Any:
            calls[k, -1] += 1
            value, pullbacks = OPS[sign](*arrays, **settings)
            return value, tuple(recorder(place, pullback) for place, pullback in enumerate(pullbacks))

        def recorder(place: int, pullback: Any) -> Any:
            def call(g: Any) -> Any:
                calls[k, place] += 1
                if not isinstance(g, np.ndarray) or g.shape != (SIZE,):
                    raise Wrong(
                        f"the pullback of v{k} was called with {g!r}, not with an array of {SIZE} elements"
                    )
                return pullback(g)

            return call

        return op

    tape = submission.Tape()
    nodes = [
        tape.leaf(x) if leaf else tape.constant(x) for x, leaf in zip(inputs, program.is_leaf, strict=True)
    ]
    run = tape.run  # asked for once: it is in another process
    for k, (sign, operands) in enumerate(steps, count):
        settings = {"by": -1.0} if sign == "neg" else {}
        nodes.append(run(counted(k, sign), *[nodes[i] for i in operands], **settings))
    seed = integers(SIZE, program.seed + 9)
    kept_seed = seed.copy()
    values = forward(program, copies, -1)
    for i in {*range(count + len(program.drawn)), len(nodes) - 1}:
        actual, value = nodes[i].value, values[i].value
        if not np.array_equal(actual, value):
            raise Wrong(f"the value of v{i} is {actual}, it should be {value}")
    actual = tape.backward(nodes[-1], seed)
    used, moved = needed(program)
    for k, (_, operands) in enumerate(steps, count):
        for place, i in enumerate(operands):
            check_calls(k, i, calls[k, -1], calls[k, place], k in used and i in moved)
    leaves = [i for i, leaf in enumerate(program.is_leaf) if leaf]
    if not isinstance(actual, list | tuple) or len(actual) != len(leaves):
        raise Wrong(
            f"backward should return a list of {len(leaves)}, one for each leaf, and returned {actual!r}"
        )
    for leaf, gradient in zip(leaves, actual, strict=True):
        check_gradient(
            leaf, gradient, kept_seed * forward(program, copies, leaf)[-1].slope if leaf in used else None
        )
    arrays = {f"the gradient of v{i}": g for i, g in zip(leaves, actual, strict=True) if g is not None}
    others = {"the seed": seed, **{f"the value of v{i}": x for i, x in enumerate(inputs)}}
    for i, (name, gradient) in enumerate(arrays.items()):
        for other, x in [*list(arrays.items())[i + 1 :], *others.items()]:
            if np.may_share_memory(gradient, x):
                raise Wrong(f"{name} and {other} are the same memory: copy")
    if not np.array_equal(seed, kept_seed) or not all(map(np.array_equal, inputs, copies)):
        raise Wrong("the seed or an input was changed")


def check_calls(k: int, i: int, of_op: int, of_pullback: int, expected: bool) -> None:
    if of_op != 1:
        raise Wrong(f"the op that makes v{k} was called {of_op} times, it should be once")
    if of_pullback != expected:
        why = "once, with the sum of all that comes back" if expected else "never: no leaf needs it"
        raise Wrong(f"the pullback from v{k} to v{i} was called {of_pullback} times, it should be {why}")


def check_gradient(leaf: int, actual: Any, expected: np.ndarray | None) -> None:
    if expected is None:
        if actual is not None:
            raise Wrong(f"the gradient of v{leaf} is {actual}, it should be None: nothing depends on it")
        return
    if type(actual) is not np.ndarray or (actual.shape, actual.dtype) != (expected.shape, expected.dtype):
        raise Wrong(
            f"the gradient of v{leaf} is {actual!r}, it should be an array of {SIZE} float64 elements"
        )
    if not np.array_equal(actual, expected):
        raise Wrong(f"the gradient of v{leaf} is {actual}, it should be {expected}")


class Forgetful:
    """A wrong answer: a tape that remembers no op, and thinks that each leaf was added to the rest."""

    def __init__(self) -> None:
        self.leaves = 0

    def leaf(self, x: np.ndarray) -> Any:
        self.leaves += 1
        return Node(x)

    def constant(self, x: np.ndarray) -> Any:
        return Node(x)

    def run(self, op: Any, *inputs: Any, **settings: Any) -> Any:
        return Node(op(*[node.value for node in inputs], **settings)[0])

    def backward(self, output: Any, seed: np.ndarray) -> list[np.ndarray]:
        return [seed.copy() for _ in range(self.leaves)]


class Node(NamedTuple):
    value: np.ndarray
