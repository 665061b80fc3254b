"""Ops that rearrange elements. Lecture section: back-propagation. Lesson: 02_backpropagation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..device import Array, array_module
from ..op import Pulled, op
from ..tensor import Tensor
from .reduce import Axis


@op
def reshape(x: Array, *, shape: tuple[int, ...] | int) -> Pulled:
    """The same elements, in C order, in another shape; one size may be -1."""
    before = x.shape
    return x.reshape(shape), (lambda g: g.reshape(before),)


@op
def flatten(x: Array, *, start_axis: int = 0) -> Pulled:
    """All axes from ``start_axis`` on as one, in C order; images keep their memory order going back."""
    before = x.shape
    channels_last = x.ndim == 4 and not x.flags.c_contiguous
    y = x.reshape(*before[:start_axis], math.prod(before[start_axis:]))

    def to_x(g: Array) -> Array:
        g = g.reshape(before)
        if not channels_last:
            return g
        xp = array_module(g)
        return xp.ascontiguousarray(g.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)

    return y, (to_x,)


@op
def transpose(x: Array, *, axes: Sequence[int] | None = None) -> Pulled:
    """The axes in another order, reversed when ``axes`` is None."""
    order = tuple(reversed(range(x.ndim))) if axes is None else tuple(a % x.ndim for a in axes)
    back = tuple(order.index(i) for i in range(x.ndim))
    return x.transpose(order), (lambda g: g.transpose(back),)


@op
def broadcast_to(x: Array, *, shape: tuple[int, ...]) -> Pulled:
    """x repeated to ``shape``; the tape sums the copies' gradients."""
    return array_module(x).broadcast_to(x, shape), (lambda g: g,)


@op
def squeeze(x: Array, *, axis: Axis = None) -> Pulled:
    """x without its axes of size 1 (or only those named)."""
    before = x.shape
    return x.squeeze(axis), (lambda g: g.reshape(before),)


@op
def expand_dims(x: Array, *, axis: Axis) -> Pulled:
    """x with new axes of size 1."""
    before = x.shape
    return array_module(x).expand_dims(x, axis), (lambda g: g.reshape(before),)


@op
def getitem(x: Array, *, index: Any) -> Pulled:
    """x[index] for slices, integers, None, ... and integer or boolean arrays; repeats add up going back."""
    index = unwrap(index)
    shape, parts = x.shape, index if isinstance(index, tuple) else (index,)
    basic = all(p is None or p is Ellipsis or isinstance(p, int | slice) for p in parts)

    def to_x(g: Array) -> Array:
        xp = array_module(g)
        dx = xp.zeros(shape, g.dtype)
        if basic:
            dx[index] = g
        else:
            xp.add.at(dx, index, g)
        return dx

    return x[index], (to_x,)


@op
def pad(x: Array, *, width: Any, value: float = 0) -> Pulled:
    """x with ``value`` around it: ``width`` is ((before, after), ...) per axis, or one number."""
    xp = array_module(x)
    pairs = [(width, width)] * x.ndim if isinstance(width, int) else [tuple(w) for w in width]
    if len(pairs) != x.ndim:
        raise ValueError(
            f"pad of an array with {x.ndim} axes needs {x.ndim} (before, after) pairs, got {len(pairs)}"
        )
    inside = tuple(slice(before, before + n) for (before, _), n in zip(pairs, x.shape, strict=True))
    y = xp.full_like(x, value, shape=tuple(n + a + b for (a, b), n in zip(pairs, x.shape, strict=True)))
    y[inside] = x
    return y, (lambda g: g[inside],)


@op
def concatenate(*xs: Array, axis: int = 0) -> Pulled:
    """The inputs end to end along ``axis``: ``concatenate(x, y, z, axis=1)``."""
    stops = [0]
    for x in xs:
        stops.append(stops[-1] + x.shape[axis])

    def piece(start: int, stop: int):
        return lambda g: g[(slice(None),) * (axis % g.ndim) + (slice(start, stop),)]

    pullbacks = tuple(piece(a, b) for a, b in zip(stops, stops[1:], strict=False))
    return array_module(xs[0]).concatenate(xs, axis), pullbacks


@op
def stack(*xs: Array, axis: int = 0) -> Pulled:
    """The inputs, all of one shape, along a new axis: ``stack(x, y, z, axis=1)``."""

    def piece(i: int):
        return lambda g: g[(slice(None),) * (axis % g.ndim) + (i,)]

    return array_module(xs[0]).stack(xs, axis), tuple(map(piece, range(len(xs))))


def split(x: Tensor, *, sections: int | Sequence[int], axis: int = 0) -> list[Tensor]:
    """x cut along ``axis`` into ``sections`` equal pieces, or before each of the given positions."""
    n = x.shape[axis]
    if isinstance(sections, int):
        if n % sections:
            raise ValueError(
                f"axis {axis} of size {n} does not split into {sections} equal sections; pass positions"
            )
        cuts = [n // sections * i for i in range(1, sections)]
    else:
        cuts = list(sections)
    before = (slice(None),) * (axis % x.ndim)
    return [getitem(x, index=(*before, slice(a, b))) for a, b in zip([0, *cuts], [*cuts, n], strict=True)]


def unwrap(index: Any) -> Any:
    """``index`` with tensors replaced by their arrays."""
    if isinstance(index, tuple):
        return tuple(map(unwrap, index))
    return index.data if isinstance(index, Tensor) else index
