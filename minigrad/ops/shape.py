"""Ops that rearrange elements. Lecture section: back-propagation. Lesson: 02_backpropagation.

>>> from minigrad import ops
>>> ops.concatenate([[1.0], [2.0]], axis=0).data.tolist()
[1.0, 2.0]
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ..integer_settings import are_integers
from ..lookup import check_choice
from ..memory_order import is_channels_last, nchw, nhwc
from ..op import Array, OpResult, Pullback, array_module, as_tensor, faster, op, settings_by_name, shape_of
from ..product import product
from ..tensor_base import TensorBase
from .axes import Axis, axes_of, axis_of
from .linear import as_rows
from .selection import sum_by_row

if TYPE_CHECKING:
    from ..tensor import Tensor


@op
def reshape(x: Array, *, shape: tuple[int, ...] | int) -> OpResult:
    """The elements of x, in C order, in another shape; one size may be -1."""
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
    y = x.reshape(*before[:start], math.prod(before[start : end + 1]), *before[end + 1 :])
    if x.ndim == 4 and not x.flags.c_contiguous:
        return y, (lambda g: nchw(nhwc(g.reshape(before))),)
    return y, (lambda g: g.reshape(before),)


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
    shifts: Any = list(shift) if isinstance(shift, list | tuple) else [shift] * len(axes)
    if not are_integers(shifts, len(axes), -math.inf):
        raise ValueError(
            f"roll along axis={axis} needs one integer as shift, or one for each axis, got {shift}"
        )
    steps = [(a, int(n)) for a, n in zip(axes, shifts, strict=True)]
    return rolled(x, steps, flat), (lambda g: rolled(g, [(a, -n) for a, n in steps], flat),)


def rolled(x: Array, shifts: Sequence[tuple[int, int]], flat: bool) -> Array:
    """The elements of x, in a row if ``flat``, so many places further along each axis of ``shifts``."""
    y = x.reshape(-1) if flat else x
    for axis, shift in shifts:
        first, before = -shift % max(y.shape[axis], 1), (slice(None),) * axis
        y = array_module(x).concatenate([y[(*before, slice(first, None))], y[(*before, slice(first))]], axis)
    return y.reshape(x.shape) if flat else y


@op
def diagonal(x: Array, *, offset: int = 0, axis1: int = 0, axis2: int = 1) -> OpResult:
    """The elements of equal index in two axes, as a last axis; right of the diagonal where ``offset`` > 0."""
    xp, shape, offset = array_module(x), x.shape, operator.index(offset)
    a, b = axes_of((axis1, axis2), max(x.ndim, 2))
    if x.ndim < 2:
        raise ValueError(f"a diagonal has two axes, an array of shape {shape} has not; reshape it")
    order = [*(i for i in range(x.ndim) if i not in (a, b)), a, b]

    def to_x(g: Array) -> Array:
        d, i = xp.zeros(shape, g.dtype), xp.arange(g.shape[-1])
        d.transpose(order)[..., i + max(-offset, 0), i + max(offset, 0)] = g
        return d

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
            return product(as_rows(parts), np.ones(times[0], g.dtype)).reshape(shape)
        return parts.sum(axis=axis + 1).reshape(shape)

    return xp.repeat(x, int(times[0]), axis), (to_x,)


@settings_by_name
def tile(x: Any, *, reps: int | Sequence[int]) -> Tensor:
    """x repeated ``reps`` times along its last axes, or along new first axes, as np.tile."""
    x = as_tensor(x)
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
        if not basic and not (len(parts) == 1 and parts[0].dtype.kind == "b"):  # it may choose one twice
            return sums_at(g, parts, shape)
        dx = array_module(g).zeros(shape, g.dtype)
        dx[index] = g
        return dx

    return x[index], (to_x,)


@faster
def sums_at(g: Array, index: tuple[Any, ...], shape: tuple[int, ...]) -> Array:
    """An array of this shape in which each element is the sum of what g has for its places in ``index``."""
    numbers = array_module(g).arange(math.prod(shape)).reshape(shape)[index]
    return sum_by_row(g.reshape(-1), numbers.reshape(-1), math.prod(shape)).reshape(shape)


def unwrap(index: Any, xp: ModuleType) -> Any:
    """``index`` with tensors replaced by their arrays; from here on all are ``xp``'s, for pullbacks too."""
    if isinstance(index, tuple):
        return tuple(unwrap([*unwrap(part, xp)] if isinstance(part, tuple) else part, xp) for part in index)
    index = index.data if isinstance(index, TensorBase) else index
    if not isinstance(index, list | range) and (xp is np or not isinstance(index, np.ndarray)):
        return index
    return xp.asarray(index) if np.size(index) else xp.zeros(np.shape(index), int)


@op
def pad(x: Array, *, width: Any, value: float = 0, mode: str = "constant") -> OpResult:
    """x with a border: ``width`` is ((before, after), ...) per axis, or one number.

    The border is ``value``, or else of x's own elements, as in np.pad: mirrored without the outermost one
    ("reflect", as in PyTorch), the outermost one ("edge", there "replicate"), or those of the other side
    ("wrap", there "circular"). Raises ValueError for other widths and modes.
    """
    check_choice("mode", mode, ["constant", "reflect", "edge", "wrap"])
    pairs = list(width) if np.iterable(width) else [(width, width)] * x.ndim
    if len(pairs) != x.ndim or not all(are_integers(pair, 2, 0) for pair in pairs):
        raise ValueError(
            f"pad of an array with {x.ndim} axes needs {x.ndim} (before, after) pairs of integers from 0 on, "
            f"or one such integer, got {width}; to cut elements off, use x[...]"
        )
    if mode != "constant":
        return bordered(x, pairs, mode)
    inside = tuple(slice(before, before + n) for (before, _), n in zip(pairs, x.shape, strict=True))
    shape = tuple(n + before + after for (before, after), n in zip(pairs, x.shape, strict=True))
    y = array_module(x).full_like(x, value, shape=shape)
    y[inside] = x
    return y, (lambda g: g[inside],)


@faster
def bordered(x: Array, pairs: Sequence[tuple[int, int]], mode: str) -> OpResult:
    """x with a border of elements of x: np.pad says which, from their numbers."""
    for axis, n in enumerate(x.shape):
        if any(pairs[axis]) and not n:
            raise ValueError(
                f"axis {axis} of shape {x.shape} has no element for a border of {mode}; pad with a value"
            )
    numbers = np.arange(x.size).reshape(x.shape)
    widths = [(int(a), int(b)) for a, b in pairs]
    places = np.pad(numbers, widths, mode=cast(Any, mode)) if x.ndim else numbers
    y, to_flat = chosen(x.reshape(-1), array_module(x).asarray(places.reshape(-1)), 0)
    return y.reshape(places.shape), (lambda g: to_flat(g.reshape(-1)).reshape(x.shape),)


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
    axis = axis_of(axis, len(xs[0].shape))
    xp = array_module(xs[0])
    if xp is not np and all(map(is_channels_last, xs)):  # CuPy's concatenate writes C order
        y = nchw(xp.concatenate([nhwc(x) for x in xs], (0, 3, 1, 2)[axis]))
    else:
        y = xp.concatenate(xs, axis)
    stops = accumulate([x.shape[axis] for x in xs], initial=0)
    return y, tuple([part_along(axis, slice(a, b)) for a, b in pairwise(stops)])


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
    return array_module(xs[0]).stack(xs, axis), tuple([part_along(axis, i) for i in range(len(xs))])


def part_along(axis: int, part: int | slice) -> Callable[[Array], Array]:
    """g -> its ``part`` along ``axis``."""
    return lambda g: g[(slice(None),) * axis + (part,)]


def unpacked(xs: tuple[Any, ...], name: str) -> Sequence[Any]:
    """What ``name`` joins: its inputs, or those in the one list or tuple that it got."""
    inputs = xs[0] if len(xs) == 1 and isinstance(xs[0], list | tuple) else xs
    if not inputs:
        raise ValueError(f"{name} of nothing has no shape; pass at least one array")
    return inputs


@settings_by_name
def split(x: Any, *, sections: int | Sequence[int], axis: int = 0) -> list[Tensor]:
    """x cut along ``axis`` into ``sections`` equal pieces, or before each of the given rising positions."""
    x = as_tensor(x)
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
