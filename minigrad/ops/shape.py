"""Ops that rearrange elements. Lecture section: back-propagation. Lesson: 02_backpropagation."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from itertools import pairwise
from types import ModuleType
from typing import Any, cast

import numpy as np

from ..device import Array, array_module
from ..integer_settings import are_integers
from ..keyword_settings import settings_by_name
from ..lookup import check_choice
from ..memory_order import is_channels_last, nchw, nhwc
from ..op import op
from ..pullback import OpResult, Pullback, shape_of
from ..tensor import Axis, Tensor
from .axes import axes_of, axis_of
from .linear import as_rows
from .selection import sum_by_row


@op
def reshape(x: Array, *, shape: tuple[int, ...] | int) -> OpResult:
    """The same elements, in C order, in another shape; one size may be -1."""
    before = x.shape
    return x.reshape(shape), (lambda g: g.reshape(before),)


@op
def flatten(x: Array, *, start_axis: int = 0, end_axis: int = -1) -> OpResult:
    """The axes from ``start_axis`` to ``end_axis`` as one, in C order.

    Images keep their memory order going back. Raises ValueError where the second stands before the first.
    """
    before, ndim = x.shape, max(x.ndim, 1)
    start, end = axis_of(start_axis, ndim), axis_of(end_axis, ndim)
    if end < start:
        raise ValueError(f"flatten ends at axis {end_axis}, before axis {start_axis}; exchange the two")
    channels_last = x.ndim == 4 and not x.flags.c_contiguous
    y = x.reshape(*before[:start], math.prod(before[start : end + 1]), *before[end + 1 :])

    def to_x(g: Array) -> Array:
        g = g.reshape(before)
        if not channels_last:
            return g
        xp = array_module(g)
        return xp.ascontiguousarray(g.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)

    return y, (to_x,)


@op
def transpose(x: Array, *, axes: Sequence[int] | None = None) -> OpResult:
    """The axes in another order, reversed when ``axes`` is None."""
    order = tuple(reversed(range(x.ndim))) if axes is None else axes_of(axes, x.ndim)
    if len(order) != x.ndim:
        raise ValueError(f"transpose of an array with {x.ndim} axes needs each of them in axes=, got {axes}")
    back = tuple(order.index(i) for i in range(x.ndim))
    return x.transpose(order), (lambda g: g.transpose(back),)


@op
def flip(x: Array, *, axis: Axis = None) -> OpResult:
    """The elements in reverse order along ``axis`` (all axes when None)."""
    axes = axes_of(axis, x.ndim)
    index = (..., *[slice(None, None, -1 if i in axes else None) for i in range(x.ndim)])
    return x[index], (lambda g: g[index],)


@op
def roll(x: Array, *, shift: int | Sequence[int], axis: Axis = None) -> OpResult:
    """The elements ``shift`` places further along ``axis``, the last ones first; of all in C order when None.

    Several axes have a shift each, or share one.
    """
    flat = axis is None or not x.ndim
    named = axis if isinstance(axis, list | tuple) else (0 if axis is None else axis,)
    axes = [axis_of(a, 1 if flat else x.ndim) for a in named]
    shifts: list[Any] = list(shift) if isinstance(shift, list | tuple) else [shift] * len(axes)
    if not are_integers(shifts, len(axes), -math.inf):
        raise ValueError(
            f"roll along axis={axis} needs one integer as shift, or one for each axis, got {shift}"
        )

    def rolled(x: Array, sign: int) -> Array:
        y = x.reshape(-1) if flat else x
        for a, n in zip(axes, shifts, strict=True):
            first = -sign * int(n) % max(y.shape[a], 1)
            if first:
                before = (slice(None),) * a
                y = array_module(x).concatenate(
                    [y[(*before, slice(first, None))], y[(*before, slice(first))]], a
                )
        return y.reshape(x.shape)

    return rolled(x, 1), (lambda g: rolled(g, -1),)


@op
def diagonal(x: Array, *, offset: int = 0, axis1: int = 0, axis2: int = 1) -> OpResult:
    """The elements of equal index in two axes, as a last axis; right of the diagonal where ``offset`` > 0."""
    xp, shape, offset = array_module(x), x.shape, operator.index(offset)
    a, b = axes_of((axis1, axis2), max(x.ndim, 2))
    if x.ndim < 2:
        raise ValueError(f"a diagonal has two axes, an array of shape {shape} has not; reshape it")
    rest = [i for i in range(x.ndim) if i not in (a, b)]

    def to_x(g: Array) -> Array:
        m, k, first = shape[b], g.shape[-1], offset if offset > 0 else -offset * shape[b]
        d = xp.zeros([shape[i] for i in (*rest, a, b)], g.dtype)
        if k:
            d.reshape(*g.shape[:-1], shape[a] * m)[..., first : first + (k - 1) * (m + 1) + 1 : m + 1] = g
        return d.transpose(np.argsort([*rest, a, b]).tolist())

    return x.diagonal(offset, a, b), (to_x,)


@op
def repeat(x: Array, *, repeats: int | Sequence[int], axis: int | None = None) -> OpResult:
    """Each element repeated ``repeats`` times along ``axis``; in C order of all elements when it is None.

    As np.repeat and torch.repeat_interleave; PyTorch's x.repeat is ``tile``. ``repeats`` may be a list of one
    number for each element of the axis. Raises ValueError for another length, or numbers below 0.
    """
    xp, shape = array_module(x), x.shape
    x = x.reshape(-1) if axis is None or not x.ndim else x
    axis = axis_of(0 if axis is None else axis, x.ndim)
    before, (n, *after) = x.shape[:axis], x.shape[axis:]
    times: Any = repeats if np.iterable(repeats) else [repeats]
    if not are_integers(times, len(times), 0) or len(times) not in (1, n):
        raise ValueError(
            f"repeat along an axis of size {n} takes one integer from 0 on or a list of {n}, got {repeats}"
        )
    if len(times) != 1:
        rows = xp.asarray(np.repeat(np.arange(n), np.asarray(times, int)))
        y = xp.take(x, rows, axis)
        return y, (lambda g: sum_by_row(g.swapaxes(0, axis), rows, n).swapaxes(0, axis).reshape(shape),)

    def to_x(g: Array) -> Array:
        parts = g.reshape(*before, n, times[0], *after)
        if xp is np and not after:  # NumPy's sums of few neighbors take 40 times as long as a product
            return (as_rows(parts) @ np.ones(times[0], g.dtype)).reshape(shape)
        return parts.sum(axis=axis + 1).reshape(shape)

    return xp.repeat(x, int(times[0]), axis), (to_x,)


@settings_by_name
def tile(x: Any, *, reps: int | Sequence[int]) -> Tensor:
    """x repeated ``reps`` times along its last axes, or along new first axes, as np.tile."""
    x = x if isinstance(x, Tensor) else Tensor(x)
    times: Any = list(reps) if np.iterable(reps) else [reps]
    if not are_integers(times, len(times), 0):
        raise ValueError(f"tile takes integers from 0 on as reps, got {reps}")
    ndim = max(len(times), x.ndim)
    times = [1] * (ndim - len(times)) + list(map(int, times))
    sizes = [1] * (ndim - x.ndim) + list(x.shape)
    pairs = list(zip(times, sizes, strict=True))
    single = reshape(x, shape=tuple(k for n in sizes for k in (1, n)))
    wide = broadcast_to(single, shape=tuple(k for pair in pairs for k in pair))
    return reshape(wide, shape=tuple(r * n for r, n in pairs))


@op
def broadcast_to(x: Array, *, shape: tuple[int, ...]) -> OpResult:
    """x repeated to ``shape``; the tape sums the copies' gradients."""
    return array_module(x).broadcast_to(x, shape), (lambda g: g,)


@op
def squeeze(x: Array, *, axis: Axis = None) -> OpResult:
    """x without its axes of size 1 (or only those named)."""
    before = x.shape
    return x.squeeze(None if axis is None else axes_of(axis, x.ndim)), (lambda g: g.reshape(before),)


@op
def expand_dims(x: Array, *, axis: Axis) -> OpResult:
    """x with new axes of size 1."""
    before = x.shape
    return array_module(x).expand_dims(x, axis), (lambda g: g.reshape(before),)


@op
def getitem(x: Array, *, index: Any) -> OpResult:
    """x[index] for slices, integers, None, ... and integer or boolean arrays; repeats add up going back."""
    index = unwrap(index, array_module(x))
    shape, parts = x.shape, index if isinstance(index, tuple) else (index,)
    basic = all(p is None or p is Ellipsis or isinstance(p, int | np.integer | slice) for p in parts)

    def to_x(g: Array) -> Array:
        xp = array_module(g)
        if basic or (len(parts) == 1 and is_mask(parts[0])):  # chooses nothing twice
            dx = xp.zeros(shape, g.dtype)
            dx[index] = g
            return dx
        first, last = integer_axes(parts)
        if first == last:
            numbers = xp.arange(math.prod(shape)).reshape(shape)[index]
            return sum_by_row(g.reshape(-1), numbers.reshape(-1), math.prod(shape)).reshape(shape)
        before, sizes, after = shape[:first], shape[first:last], shape[last:]
        numbers: Any = 0
        for n, part in zip(sizes, parts[first:last], strict=True):
            numbers = numbers * n + xp.arange(n)[part]
        rows = g.reshape(math.prod(before), numbers.size, math.prod(after)).swapaxes(0, 1)
        dx = sum_by_row(rows, numbers.reshape(-1), math.prod(sizes)).reshape(*sizes, *before, *after)
        k = len(sizes)
        return dx.transpose(*range(k, k + first), *range(k), *range(k + first, len(shape)))

    return x[index], (to_x,)


def integer_axes(parts: tuple[Any, ...]) -> tuple[int, int]:
    """The first axis that integers index, and the one behind their last; other axes are taken whole.

    (0, 0) for an index that has new axes, masks, or other slices.
    """
    whole = [isinstance(part, slice) and part == slice(None) for part in parts]
    first = whole.index(False)
    last = len(parts) - whole[::-1].index(False)
    numbers = not any(
        isinstance(p, slice) or p is None or p is Ellipsis or is_mask(p) for p in parts[first:last]
    )
    return (first, last) if numbers else (0, 0)


def is_mask(part: Any) -> bool:
    """Whether an index chooses by booleans."""
    return isinstance(part, bool) or (hasattr(part, "dtype") and part.dtype.kind == "b")


@op
def pad(x: Array, *, width: Any, value: float = 0, mode: str = "constant") -> OpResult:
    """x with a border: ``width`` is ((before, after), ...) per axis, or one number.

    The border is ``value``, or else of x's own elements, as in np.pad: mirrored without the outermost one
    ("reflect", as in PyTorch), the outermost one ("edge", there "replicate"), or those of the other side
    ("wrap", there "circular"). Raises ValueError for other widths and modes.
    """
    check_choice("mode", mode, ["constant", "reflect", "edge", "wrap"])
    xp = array_module(x)
    pairs = list(width) if np.iterable(width) else [(width, width)] * x.ndim
    if len(pairs) != x.ndim or not all(are_integers(pair, 2, 0) for pair in pairs):
        raise ValueError(
            f"pad of an array with {x.ndim} axes needs {x.ndim} (before, after) pairs of integers from 0 on, "
            f"or one such integer, got {width}; to cut elements off, use x[...]"
        )
    if mode != "constant":
        return bordered(x, pairs, mode)
    inside = tuple(slice(before, before + n) for (before, _), n in zip(pairs, x.shape, strict=True))
    y = xp.full_like(x, value, shape=tuple(n + a + b for (a, b), n in zip(pairs, x.shape, strict=True)))
    y[inside] = x
    return y, (lambda g: g[inside],)


def bordered(x: Array, pairs: Sequence[tuple[int, int]], mode: str) -> OpResult:
    """x with a border of its own elements: those at the places that np.pad gives the border of a range."""
    xp, steps = array_module(x), []
    order = sorted(range(x.ndim), key=lambda i: -x.strides[i])  # outermost in memory first
    back = np.argsort(order).tolist()
    y = x.transpose(order)
    for axis, i in enumerate(order):
        if any(pairs[i]):
            if not x.shape[i]:
                raise ValueError(
                    f"axis {i} of shape {x.shape} has no element for a border of {mode}; pad with a value"
                )
            places = np.pad(np.arange(x.shape[i]), [*map(int, pairs[i])], mode=cast(Any, mode))
            y, to_y = chosen(y, xp.asarray(places), axis)
            steps.append(to_y)

    def to_x(g: Array) -> Array:
        g = g.transpose(order)
        for step in steps:  # in any order, as each has an axis of its own
            g = step(g)
        return g.transpose(back)

    return y.transpose(back), (to_x,)


def chosen(x: Array, places: Array, axis: int) -> tuple[Array, Pullback]:
    """The slices of ``x`` at ``places`` along ``axis``, and the pullback."""
    xp, n = array_module(x), x.shape[axis]

    def to_x(g: Array) -> Array:
        return xp.ascontiguousarray(sum_by_row(g.swapaxes(0, axis), places, n).swapaxes(0, axis))

    return xp.take(x, places, axis), to_x


def concatenate(*xs: Any, axis: int = 0) -> Tensor:
    """The inputs end to end along ``axis``: ``concatenate(x, y, z, axis=1)``, or a list or tuple."""
    return concatenate_arrays(*unpacked(xs, "concatenate"), axis=axis)


@op
def concatenate_arrays(*xs: Array, axis: int) -> OpResult:
    if not all(map(shape_of, xs)):
        raise ValueError(
            "concatenate joins arrays along an axis that they have, and a number has none; use stack, or "
            "pass axis= by name"
        )
    axis, stops = axis_of(axis, len(xs[0].shape)), [0]
    xp = array_module(xs[0])
    if xp is not np and all(map(is_channels_last, xs)):  # CuPy's concatenate writes C order
        y = nchw(xp.concatenate([nhwc(x) for x in xs], (0, 3, 1, 2)[axis]))
    else:
        y = xp.concatenate(xs, axis)
    for x in xs:
        stops.append(stops[-1] + x.shape[axis])

    def piece(start: int, stop: int):
        return lambda g: g[(slice(None),) * axis + (slice(start, stop),)]

    return y, tuple(piece(a, b) for a, b in pairwise(stops))


def stack(*xs: Any, axis: int = 0) -> Tensor:
    """The inputs, all of one shape, along a new axis: ``stack(x, y, z, axis=1)``, or a list or tuple."""
    return stack_arrays(*unpacked(xs, "stack"), axis=axis)


@op
def stack_arrays(*xs: Array, axis: int) -> OpResult:
    shapes = list(map(shape_of, xs))
    if len(set(shapes)) > 1:
        raise ValueError(
            f"stack takes arrays of one shape, got {', '.join(map(str, shapes))}; pass axis= by name"
        )
    axis = axis_of(axis, len(shapes[0]) + 1)

    def piece(i: int):
        return lambda g: g[(slice(None),) * axis + (i,)]

    return array_module(xs[0]).stack(xs, axis), tuple(map(piece, range(len(xs))))


def unpacked(xs: tuple[Any, ...], name: str) -> Sequence[Any]:
    """What ``name`` joins: its inputs, or those in the one list or tuple that it got."""
    inputs = xs[0] if len(xs) == 1 and isinstance(xs[0], list | tuple) else xs
    if not inputs:
        raise ValueError(f"{name} of nothing has no shape; pass at least one array")
    return inputs


@settings_by_name
def split(x: Any, *, sections: int | Sequence[int], axis: int = 0) -> list[Tensor]:
    """x cut along ``axis`` into ``sections`` equal pieces, or before each of the given rising positions."""
    x = x if isinstance(x, Tensor) else Tensor(x)
    before = (slice(None),) * axis_of(axis, x.ndim)
    n = x.shape[len(before)]
    if isinstance(sections, int | np.integer):
        if sections < 1 or n % sections:
            raise ValueError(
                f"axis {axis} of size {n} does not split into {sections} equal sections; pass positions"
            )
        ends = [n // int(sections) * i for i in range(int(sections) + 1)]
    else:
        ends = [0, *(p + n if p < 0 else p for p in sections), n]
        if sorted(ends) != ends:
            raise ValueError(
                f"axis {axis} of size {n} is split at positions that rise from 0 to {n}, got {list(sections)}"
            )
    return [getitem(x, index=(*before, slice(a, b))) for a, b in pairwise(ends)]


def unwrap(index: Any, xp: ModuleType) -> Any:
    """``index`` with tensors replaced by their arrays; from here on all are ``xp``'s, for pullbacks too."""
    if isinstance(index, tuple):
        return tuple(unwrap([*unwrap(part, xp)] if isinstance(part, tuple) else part, xp) for part in index)
    index = index.data if isinstance(index, Tensor) else index
    if not isinstance(index, list) and (xp is np or not isinstance(index, np.ndarray)):
        return index
    return xp.asarray(index) if np.size(index) else xp.zeros(np.shape(index), int)
