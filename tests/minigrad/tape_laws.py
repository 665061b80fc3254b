"""Laws of minigrad/tape.py: gradients of drawn programs, by the type of tape under test."""

from __future__ import annotations

import gc
import types
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import hypothesis.strategies as st
import numpy as np

from minigrad import Parameter, Tape, Tensor, ops
from minigrad.device import to_host
from minigrad.memory import base_of
from minigrad.tape import finish_weights, seed_for, walk
from minigrad.testing import on_device


class Program(NamedTuple):
    """Leaves of small integers, and steps: (which of + - * and + of views, operand, operand).

    A step's value is an operand of later ones. Integers make float64 exact: laws can ask for equality.
    """

    leaves: list[np.ndarray]
    steps: list[tuple[int, int, int]]

    def __call__(self, values: Sequence[Any]) -> Any:
        """The sum of the last step's value, for anything that has + - * T and sum()."""
        values = list(values)
        for which, i, j in self.steps:
            x, y = values[i], values[j]
            values.append((x + y, x - y, x * y, x.T.T + y.T.T)[which])
        return values[-1].sum()

    def reached(self) -> list[int]:
        """The leaves that the result depends on, in the order of their first use by any step."""
        needed = {len(self.leaves) + len(self.steps) - 1}
        for k in range(len(self.steps) - 1, -1, -1):
            if len(self.leaves) + k in needed:
                needed |= set(self.steps[k][1:])
        used = [i for step in self.steps for i in step[1:] if i < len(self.leaves)]
        return [i for i in dict.fromkeys(used) if i in needed]


def nothing_is_recorded(no_grad: Callable[[], Any]) -> None:
    """What is computed inside is a constant of the tape around, which goes on afterwards."""
    x = Parameter(on_device(np.array([2.0, 3.0])))
    with Tape() as tape:
        y = x * x
        with no_grad():
            constant = (y * x).sum()
            n = len(tape.entries)
        loss = (y * constant).sum()
    assert n == 2 and constant.tape is None and not constant.requires_grad
    tape.backward(loss)
    assert x.grad is not None and to_host(x.grad).tolist() == [2 * 2.0 * 35.0, 2 * 3.0 * 35.0]


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Diamonds, values and leaves used again, unreached leaves, broadcasting."""
    seed, n_leaves = draw(st.integers(0, 2**16)), draw(st.integers(1, 4))
    sizes = [draw(st.sampled_from([(), (1,), (3,), (2, 3), (2, 1)])) for _ in range(n_leaves)]
    n_steps = draw(st.integers(1, 6))
    steps = [
        draw(st.tuples(st.integers(0, 3), *[st.integers(0, n_leaves + k - 1)] * 2)) for k in range(n_steps)
    ]
    rng = np.random.default_rng(seed)
    return Program([rng.integers(-1, 2, size).astype(float) for size in sizes], steps)


class Dual(NamedTuple):
    """A value and how fast it changes: forward differentiation, the oracle of the backward one."""

    value: np.ndarray
    slope: np.ndarray

    def __add__(self, other: Dual) -> Dual:  # pyright: ignore[reportIncompatibleMethodOverride]
        return Dual(self.value + other.value, self.slope + other.slope)

    def __sub__(self, other: Dual) -> Dual:
        return Dual(self.value - other.value, self.slope - other.slope)

    def __mul__(self, other: Dual) -> Dual:  # pyright: ignore[reportIncompatibleMethodOverride]
        return Dual(self.value * other.value, self.slope * other.value + self.value * other.slope)

    @property
    def T(self) -> Dual:
        return Dual(self.value.T, self.slope.T)

    def sum(self) -> Dual:
        shape = np.broadcast_shapes(self.value.shape, self.slope.shape)
        return Dual(self.value.sum(), np.broadcast_to(self.slope, shape).sum())


def leaves_of(program: Program, kind: type[Tensor] = Parameter) -> list[Tensor]:
    return [kind(on_device(x), requires_grad=True) for x in program.leaves]


def backward_agrees_with_forward(tape_type: type[Tape], program: Program) -> None:
    """Every gradient, contracted with an integer direction, is exactly the slope that dual numbers give."""
    leaves = leaves_of(program)
    with tape_type() as tape:
        loss = program(leaves)
    tape.backward(loss)
    for k, leaf in enumerate(leaves):
        v = np.random.default_rng(k).integers(1, 5, leaf.shape).astype(float)
        duals = [Dual(x, v if i == k else np.zeros_like(x)) for i, x in enumerate(program.leaves)]
        expected = program(duals).slope
        assert leaf.grad is None or leaf.grad.shape == leaf.shape, f"leaf {k} got shape {leaf.grad.shape}"
        slope = 0.0 if leaf.grad is None else float((to_host(leaf.grad) * v).sum())
        assert slope == expected, f"leaf {k} has the slope {slope}, dual numbers give {expected}"


def leaves_are_announced_when_final(tape_type: type[Tape], program: Program) -> None:
    """Each reached leaf is announced once, when its gradient is final, in the reverse order of first use."""
    leaves, order = leaves_of(program), []
    with tape_type() as tape:
        loss = program(leaves)

    def note(leaf: Tensor) -> None:
        k = next(i for i, x in enumerate(leaves) if x is leaf)
        order.append((k, None if leaf.grad is None else to_host(leaf.grad).copy()))

    tape.backward(loss, on_grad=note)
    assert [k for k, _ in order] == program.reached()[::-1], (
        f"announced {[k for k, _ in order]}, reached (last used first) {program.reached()[::-1]}"
    )
    for k, leaf in enumerate(leaves):
        then = dict(order).get(k)
        assert (leaf.grad is None) == (then is None), f"leaf {k} has a gradient but was not announced"
        if leaf.grad is not None and then is not None:
            assert leaf.grad.shape == leaf.shape
            assert np.array_equal(to_host(leaf.grad), then), f"leaf {k} changed after it was announced"


def gradients_are_private(tape_type: type[Tape], program: Program) -> None:
    """What on_grad writes into one gradient reaches no other gradient, and no value."""
    clean, leaves, gradients = leaves_of(program), leaves_of(program), {}
    with tape_type() as tape:
        loss = program(clean)
    tape.backward(loss)

    def spoil(leaf: Tensor) -> None:
        k = next(i for i, x in enumerate(leaves) if x is leaf)
        assert leaf.grad is not None
        gradients[k] = to_host(leaf.grad).copy()
        leaf.grad[...] = np.nan

    with tape_type() as tape:
        loss = program(leaves)
    tape.backward(loss, on_grad=spoil)
    for k, (x, y) in enumerate(zip(clean, leaves, strict=True)):
        assert np.array_equal(to_host(x.data), to_host(y.data)), f"the data of leaf {k} changed"
        if x.grad is not None:
            assert np.array_equal(gradients[k], to_host(x.grad)), f"leaf {k} shares its gradient with another"


def weights_later_changes_nothing(tape_type: type[Tape], program: Program) -> None:
    """Walking inputs first and finishing the weights gives the plain walk's gradients, bit by bit.

    Every other leaf is an input: its gradient is there when backward returns, those of Parameters are not.
    """
    runs = []
    for later in (False, True):
        kinds = (Parameter, Tensor)
        leaves = [kinds[i % 2](on_device(x), requires_grad=True) for i, x in enumerate(program.leaves)]
        with tape_type() as tape:
            loss = program(leaves)
        order: list[Tensor] = []
        rest = tape.backward(loss, on_grad=order.append, weights_later=later)
        if later:
            assert all(type(x) is Tensor for x in order), "a weight was computed early"
            assert len(order) == sum(i % 2 for i in program.reached()), "an input was put off"
            finish_weights(rest, order.append)
        assert len({id(x) for x in order}) == len(order), "a leaf was announced twice"
        runs.append([None if x.grad is None else to_host(x.grad) for x in leaves])
        assert [i for i, x in enumerate(leaves) if any(x is s for s in order)] == sorted(program.reached())
    for k, (plain, late) in enumerate(zip(*runs, strict=True)):
        assert (plain is None) == (late is None), f"leaf {k} has a gradient in one walk only"
        assert plain is None or np.array_equal(plain, late), f"leaf {k}: {plain} in one walk, {late} in two"


def the_readable_walk_agrees(tape_type: type[Tape], program: Program) -> None:
    """``walk`` and ``backward`` give the same bits, and announce the same leaves in the same order."""
    runs = []
    for readable in (True, False):
        leaves, order = leaves_of(program), []
        with tape_type() as tape:
            loss = program(leaves) * on_device(np.float64(1 / 3))  # so that sums are rounded

        def note(leaf: Tensor, leaves: list[Tensor] = leaves, order: list[int] = order) -> None:
            order.append(next(i for i, x in enumerate(leaves) if x is leaf))

        if loss.tape is None:
            return
        if readable:
            grads = [None] * len(tape.entries)
            grads[loss.index] = seed_for(loss, None)
            walk(list(tape.entries), grads, note)
        else:
            tape.backward(loss, on_grad=note)
        runs.append((order, [None if x.grad is None else to_host(x.grad).tolist() for x in leaves]))
    assert runs[0] == runs[1], f"the readable walk gives {runs[0]}, backward {runs[1]}"


def arrays_are_released_as_the_walk_passes(tape_type: type[Tape]) -> None:
    """At the announcement of weight k products from the k-th on are gone; at the end the tape is empty."""
    weights, watched, alive = [Parameter(on_device(np.ones(100))) for _ in range(6)], [], []
    with tape_type() as tape:
        h = weights[0] * 1.0
        for w in weights[1:]:
            h = h * w
            watched.append(weakref.ref(h.data))
        loss = h.sum()
    del h
    tape.backward(loss, on_grad=lambda _: alive.append(sum(ref() is not None for ref in watched)))
    assert all(n <= k for n, k in zip(alive, [4, 3, 2, 1, 0, 0], strict=True)), alive
    assert tape.nbytes == 0 and len(tape.entries) == 0 and not tape.leaves


def nbytes_is_what_is_held(tape_type: type[Tape]) -> None:
    """The bytes that the garbage collector finds, through closures, cells and objects; each base once."""
    w, x = (Parameter(on_device(np.ones((10, 10)))) for _ in range(2))
    constant, other = on_device(np.ones((10, 10))), on_device(np.ones((10, 10)))
    bias = Parameter(on_device(np.ones(10)))
    with tape_type() as tape:
        h = ops.linear(other, w) * w.T * x.data[:5].reshape(5, 10, 1).sum(0)
        h = ops.batch_norm(h * constant * constant[:1].T, bias, bias)
        ops.softmax(ops.relu(h[2:, ::-1])).mean()
        _ = ops.exp(ops.dropout(h, p=0.5, rng=np.random.default_rng(0)))
    assert tape.nbytes == held_bytes(tape) > 0


def held_bytes(tape: Tape) -> int:
    """An oracle for nbytes: whatever the garbage collector reaches from the entries, leaves left out."""
    own = {id(base_of(entry.data)) for entry in tape.entries if isinstance(entry, Tensor)}
    stack: list[Any] = [p for e in tape.entries if isinstance(e, list) for _, _, p in e]
    ids, bases = set(), {}
    while stack:
        x = stack.pop()
        # A function refers to its module's globals: those are not the tape's.
        foreign = isinstance(x, types.ModuleType | type | Tensor) or (isinstance(x, dict) and "__name__" in x)
        if id(x) in ids or foreign:
            continue
        ids.add(id(x))
        if isinstance(x, np.ndarray):
            bases[id(base_of(x))] = base_of(x)
        stack.extend(gc.get_referents(x))
    return sum(a.nbytes for key, a in bases.items() if key not in own)


def gives_results_away(once_for_all: Callable[..., Any]) -> None:
    """Each pullback gives a result to somebody who may write into it; one call computes all of them."""
    calls: list[Any] = []
    ones = np.ones(2)
    read, pullback = once_for_all(lambda g: calls.append(g) or (g + 1, g + 2))
    assert read(ones, 1).tolist() == [3, 3]
    first, second = pullback(0)(ones), pullback(1)(ones)
    assert len(calls) == 1, f"two results take {len(calls)} calls"
    first[...], second[...] = 9, 9
    again = pullback(0)(ones), read(ones, 1)
    assert [a.tolist() for a in again] == [[2, 2], [3, 3]], f"what was given away is {again}"
