"""Each rank receives the rows that it needs from their owners, and sends the gradients of these rows back.

Lecture section: model parallelism in space. Lesson: 12_spatial. Only rows of the image are sent; each rank
makes the border around the image itself. Rows are fetched first, then columns with them, so that corners come
by way of a neighbour. The owner of a row adds up the gradients that come back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from minigrad import ops
from minigrad.device import Array, array_module
from minigrad.op import op
from minigrad.ops.geometry import Geometry
from minigrad.pullback import OpResult
from minigrad.tensor import Tensor

from ...comm.collectives import allgather
from ...comm.collectives.send_recv import Tag
from ...comm.communicator import Communicator
from ...comm.differentiable import concatenate, zeros_of
from ..layers.sharding import Shard
from .receptive_field import ROWS, RowRange, window_along

Sides = tuple[int, int]  # the width of the border before and after
Parts = tuple[Array, Mapping[int, slice]]  # an array, and by rank parts of it along an axis
Rows = dict[int, Array]  # by rank


class Routes(NamedTuple):
    """The rows that one rank sends to and receives from each other rank, and those that it has itself.

    ``sends`` and ``own_rows`` index the rows that it holds, ``receives`` and ``own_place`` the rows that it
    needs, without the border. Ranks between which nothing is sent are left out.
    """

    sends: dict[int, slice]
    receives: dict[int, slice]
    own_rows: slice
    own_place: slice

    @property
    def silent(self) -> bool:
        """Whether there is no message."""
        return not self.sends and not self.receives


def routes(bounds: Sequence[int], needed: Sequence[RowRange], rank: int) -> Routes:
    """The routes of one rank, where rank r holds the rows bounds[r] to bounds[r + 1]."""

    def shared(owner: int, asker: int, origin: int) -> slice:
        start = max(bounds[owner], needed[asker].start)
        stop = max(min(bounds[owner + 1], needed[asker].stop), start)
        return slice(start - origin, stop - origin)

    others = [r for r in range(len(needed)) if r != rank]
    here, there = bounds[rank], needed[rank].start
    sends = {r: part for r in others if size(part := shared(rank, r, here))}
    receives = {r: part for r in others if size(part := shared(r, rank, there))}
    return Routes(sends, receives, shared(rank, rank, here), shared(rank, rank, there))


@op
def fetch(
    x: Array,
    *,
    shard: Shard,
    needed: Sequence[RowRange],
    value: float = 0.0,
    width: Mapping[int, Sides] | None = None,
    whole: bool = False,
) -> OpResult:
    """The rows ``needed[rank]`` of an array split by ``shard``, with their border filled with ``value``.

    ``width`` is the border along other axes, which is made in the same copy. Partial to partial. At most one
    message to and from each other rank, forward and backward. Of an array that all ranks hold ``whole``,
    replicated to partial, forward sends no message; backward sends gradients to the owners that ``shard``
    names, and all gather them.
    """
    axis, mine = shard.axis, needed[shard.comm.rank]
    route, border = routes(shard.bounds, needed, shard.comm.rank), border_of(mine, axis, width)
    back = make_backward(shard, route)

    def to_x(g: Array) -> Array:
        if whole:
            return concatenate(allgather(shard.comm, back(inside(g, border))), axis)
        return back(inside(g, border))

    if whole:  # all rows are here
        route = Routes({}, {}, slice(mine.start, mine.stop), slice(0, mine.stop - mine.start))
    if route.silent and not border:
        return x[index_along(axis, route.own_rows)], (to_x,)  # nothing to put together: no copy
    y = bordered(x, axis, mine.inside.size, border, value)
    inner = inside(y, border)
    received = start_exchange(shard.comm, axis, (x, route.sends), (inner, route.receives), Tag.FORWARD)
    inner[index_along(axis, route.own_place)] = x[index_along(axis, route.own_rows)]
    for source, rows in received().items():
        inner[index_along(axis, route.receives[source])] = rows
    return y, (to_x,)


@op
def empty_output(*xs: Array, shape: tuple[int, ...]) -> OpResult:
    """An array without elements, for a rank without rows to compute; all gradients are zeros."""
    return array_module(xs[0]).zeros(shape, xs[0].dtype), tuple(map(zeros_of, xs))


def make_backward(shard: Shard, route: Routes) -> Callable[[Array], Array]:
    """The pullback from the gradient of the rows this rank needed to that of the rows it holds."""
    axis, n, own_rows, own_place = shard.axis, shard.local_size, route.own_rows, route.own_place

    def back(g: Array) -> Array:
        if route.silent and size(own_rows) == n:
            return g[index_along(axis, own_place)]
        d = bordered(g, axis, n, {})
        received = start_exchange(shard.comm, axis, (g, route.receives), (d, route.sends), Tag.GRADIENT)
        d[index_along(axis, slice(own_rows.start))] = 0
        d[index_along(axis, own_rows)] = g[index_along(axis, own_place)]
        d[index_along(axis, slice(own_rows.stop, None))] = 0
        for source, rows in received().items():
            d[index_along(axis, route.sends[source])] += rows
        return d

    return back


def start_exchange(comm: Communicator, axis: int, out: Parts, into: Parts, tag: int) -> Callable[[], Rows]:
    """Start to send the parts of ``out`` and to receive those of ``into``, which the result waits for."""
    (x, sent), (like, received) = out, into
    receives = {r: comm.start_recv(r, tag, like[index_along(axis, rows)]) for r, rows in received.items()}
    sends = [comm.start_send(x[index_along(axis, rows)], r, tag) for r, rows in sent.items()]

    def finish() -> Rows:
        arrays = {r: receive() for r, receive in receives.items()}
        for send in sends:
            send()
        return arrays

    return finish


def index_along(axis: int, part: slice) -> tuple[slice, ...]:
    """The index of a part along an axis."""
    return (*(slice(None),) * axis, part)


def border_of(rows: RowRange, axis: int, others: Mapping[int, Sides] | None) -> dict[int, Sides]:
    """The border by axis, without axes that have none."""
    border = {**(others or {}), axis: (rows.before, rows.after)}
    return {axis: sides for axis, sides in border.items() if any(sides)}


def bordered(x: Array, axis: int, n: int, border: Mapping[int, Sides], value: float = 0.0) -> Array:
    """An array like ``x`` of length ``n`` along ``axis``, not filled but for the ``value`` in its border."""
    shape = [n if i == axis else size for i, size in enumerate(x.shape)]
    for i, sides in border.items():
        shape[i] += sum(sides)
    y = array_module(x).empty_like(x, shape=shape)  # in its dtype and memory order
    for i, (before, after) in border.items():
        y[index_along(i, slice(before))] = value
        y[index_along(i, slice(y.shape[i] - after, None))] = value
    return y


def inside(y: Array, border: Mapping[int, Sides]) -> Array:
    """A view of ``y`` without its border."""
    for axis, (before, after) in border.items():
        y = y[index_along(axis, slice(before, y.shape[axis] - after))]
    return y


def size(part: slice) -> int:
    return part.stop - part.start


def receptive_field_of(
    x: Tensor,
    shards: Sequence[Shard],
    outs: Sequence[Shard],
    geometry: Geometry,
    *,
    value: float = 0.0,
    whole: Sequence[Shard] = (),
) -> Tensor:
    """The rows and columns, with the border, that the windows of this rank's outputs look at, in one array.

    The images ``x`` are split by ``shards``, the outputs by ``outs``, along the same axes. Along the shards
    in ``whole`` all ranks hold whole images.
    """
    width = {axis: (p, p) for axis, p in enumerate(geometry.padding, ROWS)}
    for shard, out in zip(shards, outs, strict=True):
        window, last = window_along(shard.axis, geometry), shard is shards[-1]
        needed = [window.receptive_field(*limits, shard.length) for limits in pairwise(out.bounds)]
        if not last:  # the border is added at the end, so that it is not sent with the columns
            width[shard.axis] = needed[shard.comm.rank].before, needed[shard.comm.rank].after
            needed = [rows.inside for rows in needed]
        settings = {"value": value, "width": width if last else None, "whole": shard in whole}
        x = fetch(x, shard=shard, needed=needed, **settings)
    return x


@op
def with_fetched_gradients(
    y: Array, x: Array, weight: Array, *, shards: Sequence[Shard], outs: Sequence[Shard], geometry: Geometry
) -> OpResult:
    """The output ``y`` of a convolution of ``x``, unchanged; backward computes the gradient of ``x`` here.

    At stride 1 that gradient is a convolution of y's gradient with the rotated kernel. So each rank fetches a
    halo of gradients and computes its own rows, as in forward: no row is computed twice, and none is sent
    back to its owner.
    """
    back, channels, zeros = geometry.backward(), x.shape[1], None if x.size else zeros_of(x)

    def to_x(g: Array) -> Array:
        g_seen = receptive_field_of(Tensor(g), outs, shards, back)
        if zeros is not None:
            return zeros(g)
        by_group = weight.reshape(back.groups, -1, *weight.shape[1:])[..., ::-1, ::-1]
        rotated = by_group.swapaxes(1, 2).reshape(channels, -1, *back.kernel)
        return ops.conv2d(g_seen, rotated, dilation=back.dilation, groups=back.groups).data

    return y, (lambda g: g, to_x, None)
