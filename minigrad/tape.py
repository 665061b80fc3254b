"""The tape is a list in the order things ran; backward walks it in reverse.

An entry is what one op left behind: ``[(index, shape, pullback), ...]``, one triple for each input
that leads to a leaf. A leaf gets an entry at its first use, so reaching that entry on the
way back means that every use has been seen: its gradient is final, and is announced there, once.
Lecture section: back-propagation. Lesson: 02_backpropagation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, wraps
from typing import Any, NamedTuple, Self

import numpy as np

from .checked_entries import CheckedEntries, checks, op_of
from .device import Array, array_module, on_gpu, sum_in_order
from .memory import base_of, retained_arrays
from .pictures.tape_outline import TapeOutline
from .sums import axis_sums
from .tensor_base import TensorBase

OnGrad = Callable[[Any], object]
"""A function that is called with each leaf, a Tensor, as soon as its gradient is final."""
current_tape: ContextVar[Tape | None] = ContextVar("minigrad.current_tape", default=None)


def walk(entries: list[Any], grads: list[Any], on_grad: OnGrad) -> None:
    """Back-propagation, in its readable form; ``Tape.backward`` finds the same gradients, bit by bit.

    ``grads`` has a gradient for each entry of a tape: at first only that of the loss, None elsewhere.
    """
    for i in reversed(range(len(entries))):
        entry, g = entries[i], grads[i]
        if g is None:  # the loss does not depend on it
            continue
        if isinstance(entry, TensorBase):  # a leaf: all its uses have been passed
            entry.accumulate_grad(g, private=False)
            on_grad(entry)
            continue
        for index, shape, pullback in entry:
            d = undo_broadcast(pullback(g), shape)
            grads[index] = d if grads[index] is None else grads[index] + d


class WeightGradient(NamedTuple):
    """A parameter's gradient that is still to be computed: ``pullback(g)``."""

    parameter: TensorBase
    shape: tuple[int, ...]
    pullback: Callable[[Array], Array]
    g: Array

    def compute(self) -> Array:
        d = input_gradient(self.pullback(self.g), self.g, self.shape, self.pullback)
        return d.copy() if d is self.g or d.base is not None else d


class Point(list):
    """An entry without inputs, which marks a point between two ops."""

    def __init__(self, callback: Callable[[], object]):
        super().__init__()
        self.callback = callback


@contextmanager
def no_grad() -> Iterator[None]:
    """Inside it nothing is recorded, also within a Tape; without an open tape nothing is recorded anyway.

    What is computed inside is constant to the tapes around. ``@no_grad()`` does it for a function.
    """
    token = current_tape.set(None)
    try:
        yield
    finally:
        current_tape.reset(token)


class Tape:
    """Records the ops run inside ``with Tape() as tape:`` to compute their gradients.

    ``backward`` uses a tape up: the walk releases each entry that it passes. A tape holds arrays, not copies:
    do not change parameters, or arrays that tensors were made of, before backward. With
    MINIGRAD_CHECK=arrays backward detects such a change and raises RuntimeError with the op's name.
    """

    __slots__ = ("entries", "leaves", "ops", "_tokens")

    def __init__(self) -> None:
        self.entries: Any = CheckedEntries() if checks("arrays") else []
        self.leaves: dict[int, int] = {}
        self.ops: dict[int, str] = {}  # the names of entries that are no leaves, by index
        self._tokens: list[Any] = []

    def __enter__(self) -> Self:
        self._tokens.append(current_tape.set(self))
        return self

    def __exit__(self, *_: object) -> None:
        current_tape.reset(self._tokens.pop())

    def index_of(self, x: TensorBase) -> int | None:
        """Where ``x`` stands on this tape; a leaf is entered at its first use; None for a constant."""
        if x.tape is self:
            return x.index
        if x.tape is not None:
            raise RuntimeError(
                f"a tensor of shape {x.shape} comes from another tape; "
                "run the whole computation under one Tape, or pass x.detach()"
            )
        if not x.requires_grad:
            return None
        index = self.leaves.get(id(x))
        if index is None:
            self.entries.append(x)  # the entry holds x, so its id stays its own
            index = self.leaves[id(x)] = len(self.entries) - 1
        return index

    def when_reached(self, callback: Callable[[], object]) -> None:
        """Call ``callback`` when backward comes back to this point, whether a gradient does or not."""
        self.ops[len(self.entries)] = "point"
        self.entries.append(Point(callback))

    def backward(
        self,
        loss: TensorBase,
        seed: Array | float | None = None,
        on_grad: OnGrad | None = None,
        *,
        weights_later: bool = False,
    ) -> list[WeightGradient]:
        """Add to every leaf's ``grad`` the gradient of ``seed * loss``, and announce it when final.

        ``seed`` has the loss's shape, or is a number; 1 for a loss of one element. ``on_grad(leaf)``
        is called once per leaf, when its gradient is final, in the reverse order of first use; a
        leaf that the loss does not reach is not announced. With ``weights_later`` only input
        gradients are computed: those of Parameters come back as a list for ``finish_weights``.

        Raises RuntimeError for a spent tape or a loss from another one, ValueError for a seed that
        is missing or does not fit.
        """
        if isinstance(self.entries, _Spent):
            raise RuntimeError(_Spent.message)
        if loss.tape is not self:
            raise RuntimeError(
                "the loss is not on this tape: it was computed under another Tape, under none, or from "
                "constants only, such as .data of a tensor; compute it inside `with Tape() as tape:` from "
                "tensors that require gradients"
            )
        grads: list[Array] = [None] * len(self.entries)
        grads[loss.index] = seed_for(loss, seed, own=weights_later)
        borrowed = {loss.index}  # slots whose array someone else may hold too
        later: list[WeightGradient] | None = [] if weights_later else None
        buffers = any([self.entries[i].grad_buffer is not None for i in self.leaves.values()])
        entries, self.entries, self.leaves = self.entries, _Spent(self.outline()), {}
        while entries:  # ``walk``, which frees what it passes and adds in place where nobody else holds a sum
            entry, g = entries.pop(), grads.pop()
            if g is None:
                if type(entry) is Point:
                    entry.callback()
                continue
            if isinstance(entry, TensorBase):
                entry.accumulate_grad(g, private=len(entries) not in borrowed)
                if on_grad is not None:
                    on_grad(entry)
                continue
            if type(entry) is not list:
                entry.record(entries)  # of a segment, see ``recompute``; g is the gradient of the last one
                grads += [*[None] * (len(entries) - len(grads) - 1), g]
                continue
            for index, shape, pullback in entry:
                if later is not None:
                    used = entries[index]
                    if isinstance(used, TensorBase) and used.is_parameter:
                        later.append(WeightGradient(used, shape, pullback, g))
                        continue
                if buffers and grads[index] is None:
                    grads[index] = write_into_buffer(entries[index], pullback, g)
                    if grads[index] is not None:
                        continue
                d = pullback(g)
                try:
                    fits = d.shape == shape
                except AttributeError:
                    fits = False
                if not fits:
                    d = input_gradient(d, g, shape, pullback)
                before = grads[index]
                if before is None:
                    grads[index] = d
                    if d is g or d.base is not None and not is_whole(d, g):
                        borrowed.add(index)
                elif index in borrowed:
                    grads[index] = sum_in_order(before, d)
                    borrowed.discard(index)
                else:
                    before += d
                    grads[index] = before
        return later or []

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays that the pullbacks hold, each base array once, leaves' own data left out."""
        own = {id(base_of(entry.data)) for entry in self.entries if not isinstance(entry, list)}
        pullbacks = [p for entry in self.entries if isinstance(entry, list) for _, _, p in entry]
        bases = {id(b): b for b in map(base_of, retained_arrays(pullbacks))}
        return sum(b.nbytes for key, b in bases.items() if key not in own)

    def outline(self) -> TapeOutline:
        """The names and shapes of its entries; after backward those that it had."""
        spent = isinstance(self.entries, _Spent)
        return self.entries.outline if spent else TapeOutline(self.entries, len(self.leaves), self.ops)

    def __repr__(self) -> str:
        """``Tape(12 entries, 5 of them leaves)``, and whether backward has released them."""
        outline, released = self.outline(), ", released" * isinstance(self.entries, _Spent)
        return f"{type(self).__name__}({outline.count} entries, {outline.leaves} of them leaves{released})"

    def _repr_svg_(self) -> str:
        """The picture that a notebook shows: ops, what they take and keep, and the leaves' gradients."""
        from .pictures.tape_picture import tape_picture

        return tape_picture(self.outline(), None if isinstance(self.entries, _Spent) else self.entries)


def finish_weights(later: list[WeightGradient], on_grad: OnGrad | None = None) -> None:
    """Compute the weight gradients that ``backward(..., weights_later=True)`` left, of one or more tapes.

    Several gradients of one parameter (micro-batches, or a tied weight) are summed; where the
    pullback has ``sum(pullbacks, gs)`` they become one product. Each parameter is announced once.
    """
    by_parameter: dict[int, list[WeightGradient]] = {}
    for item in later:
        by_parameter.setdefault(id(item.parameter), []).append(item)
    for items in by_parameter.values():
        parameter, shape, pullback, _ = items[0]
        fused = getattr(pullback, "sum", None)
        alike = all(type(item.pullback) is type(pullback) for item in items)
        if fused is not None and alike and len(items) > 1:
            d = fused([item.pullback for item in items], [item.g for item in items])
            parameter.accumulate_grad(undo_broadcast(d, shape))
        else:
            for item in items:
                parameter.accumulate_grad(item.compute())
        if on_grad is not None:
            on_grad(parameter)


def write_into_buffer(entry: Any, pullback: Any, g: Array) -> Array | None:
    """``pullback(g)``, written into the entry's ``grad_buffer``; None if that is not possible."""
    if not isinstance(entry, TensorBase):
        return None
    into, buffer = getattr(pullback, "into", None), entry.grad_buffer
    if into is None or buffer is None or entry.grad is not None or not into(g, buffer):
        return None
    entry.grad_buffer = None
    return buffer


def is_whole(d: Array, g: Array) -> bool:
    """Whether the view ``d`` that a pullback made of ``g`` is all of a NumPy array that nobody else holds.

    Such are reshaped or transposed results; a part would keep the rest in memory, and a broadcast one is
    read-only.
    """
    if type(d) is not np.ndarray or type(d.base) is not np.ndarray:
        return False
    return d.base.size == d.size and d.base is not base_of(g) and d.flags.writeable


def once(f: Callable[[Array], Any]) -> Callable[[Array], Any]:
    """``f(g)``, computed at the first call and kept for the op's other pullbacks.

    The key is ``g`` itself: another ``g`` is computed again. Share only what the input gradient
    needs anyway, or "weights later" does its work early.
    """
    last: list[Any] = []

    def shared(g: Array) -> Any:
        if not last or last[0] is not g:
            last[:] = g, f(g)
        return last[1]

    return shared


def once_for_all(
    f: Callable[[Array], Sequence[Array | None]],
) -> tuple[Callable[[Array, int], Any], Callable[[int], Callable[[Array], Array]]]:
    """Two functions: ``read(g, i)`` is result i of ``f(g)``, ``pullback(i)(g)`` gives it away.

    All results are computed at once, and again after one that is asked for was given away.
    """
    last: list[Any] = []

    def read(g: Array, i: int) -> Any:
        if not last or last[0] is not g or last[1][i] is None:
            last[:] = g, list(f(g))
        return last[1][i]

    def pullback(i: int) -> Callable[[Array], Array]:
        @wraps(f)
        def give(g: Array) -> Array:
            result, last[1][i] = read(g, i), None
            return result

        return give

    return read, pullback


def input_gradient(d: Any, g: Array, shape: tuple[int, ...], pullback: Callable[[Array], Any]) -> Array:
    """``d``, which ``pullback(g)`` returned for an input of ``shape``, in this shape.

    Raises TypeError or ValueError, naming the op, where it is no array, or one that no sum can bring there.
    """
    if not isinstance(d, np.ndarray | np.generic) and not on_gpu(d):
        raise TypeError(
            f"the gradient of {op_of([pullback])} for an input of shape {shape} is {type(d).__name__}; a "
            "pullback returns an array"
        )
    if not is_broadcast(d.shape, shape, g.shape):
        raise ValueError(
            f"the gradient of {op_of([pullback])} for an input of shape {shape} has shape {d.shape}; a "
            f"pullback returns the input's shape, or that to which it was broadcast in the value's, {g.shape}"
        )
    return undo_broadcast(d, shape)


def is_broadcast(d: tuple[int, ...], shape: tuple[int, ...], value: tuple[int, ...]) -> bool:
    """Whether an input of ``shape`` may be repeated to shape ``d`` by an op with a value of this shape."""
    more = len(d) - len(shape)
    own = (1,) * more + shape
    return 0 <= more <= max(len(value) - len(shape), 0) and all(
        n == m or m == 1 and (n in value or n and math.prod(value) % n == 0)  # of axes that are flat
        for n, m in zip(d, own, strict=True)
    )


def undo_broadcast(g: Array, shape: tuple[int, ...]) -> Array:
    """The sum of ``g`` over the axes along which an input of ``shape`` was repeated."""
    if g.shape == shape:
        return g
    if g.size == math.prod(shape):  # of one sample, say: all axes to sum over have one element
        return g.reshape(shape)
    leading = g.ndim - len(shape)
    repeated = [i for i, n in enumerate(shape, leading) if n == 1 and g.shape[i] != 1]
    d = axis_sums(g, (*range(leading), *repeated))
    return d.reshape(shape) if repeated or not shape else d  # on a GPU a leaf would copy a view


def seed_for(loss: TensorBase, seed: Array | float | None, own: bool = True) -> Array:
    """The gradient that backward starts from, in the loss's shape and dtype; ``own`` if it outlasts backward.

    Otherwise it may be the caller's array: pullbacks do not write into it, and what a leaf gets is a copy.
    """
    xp = array_module(loss.data)
    if seed is None and loss.data.size != 1:
        raise ValueError(
            f"backward of a tensor of shape {loss.shape} needs a seed of that shape; "
            "reduce it to a scalar with .sum() or .mean(), or pass seed="
        )
    if seed is None or isinstance(seed, int | float):
        if seed in (None, 1) and loss.data.size == 1 and xp is not np and not own:
            return one(xp, loss.shape, loss.dtype, loss.data.device.id)
        return xp.full(loss.shape, 1.0 if seed is None else seed, loss.dtype)
    array = xp.asarray(seed, dtype=loss.dtype)
    if array.shape not in ((), loss.shape):
        raise ValueError(
            f"the seed has shape {array.shape}, the loss {loss.shape}; pass a seed of the loss's shape"
        )
    if array.shape == loss.shape and not own:
        return array
    return xp.broadcast_to(array, loss.shape).copy(order="K")  # images stay channels-last


@cache
def one(xp: Any, shape: tuple[int, ...], dtype: np.dtype, gpu: int) -> Array:
    """The number 1 on the current ``gpu``, which all backwards share: each would take a kernel to make it."""
    return xp.ones(shape, dtype)


class _Spent(list):
    """Replaces the entries after backward, so that any further use raises an error that explains it."""

    message = (
        "this tape is spent: backward was already called and released what it held; "
        "run the forward pass again under a new Tape, or add the losses before one backward"
    )

    def __init__(self, outline: TapeOutline):
        super().__init__()
        self.outline = outline

    def append(self, _: object) -> None:
        raise RuntimeError(self.message)
