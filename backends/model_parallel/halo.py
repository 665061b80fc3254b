"""Each rank gets the rows it needs from whoever has them, and sends their gradients back, where they add up.

Lecture section: model parallelism in space. Lesson: 12_spatial. Only rows that exist travel; the
border around the image is made where it is needed. Rows and columns are fetched one after the other, so that
corners come by way of a neighbour.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from minigrad.device import Array, array_module
from minigrad.op import OpResult, op

from ..comm.collectives import allgather
from ..comm.collectives.send_recv import Tag
from ..comm.differentiable import joined, zeros_of
from ..comm.protocol import Comm
from .activation import Cut
from .geometry import Needed

Sides = tuple[int, int]  # how much border stands before and behind


class Routes(NamedTuple):
    """Which rows one rank gives to each other and gets from each, and which it keeps; none of them empty
    but, perhaps, the last.

    ``gives`` and ``kept`` are rows of what it has, ``gets`` and ``place`` of what it wants, less the border.
    """

    gives: dict[int, slice]
    gets: dict[int, slice]
    kept: slice
    place: slice

    @property
    def silent(self) -> bool:
        """No message at all."""
        return not self.gives and not self.gets


def routes(bounds: Sequence[int], wanted: Sequence[Needed], rank: int) -> Routes:
    """The routes of one rank, where rank r has the rows bounds[r] to bounds[r + 1]."""

    def shared(owner: int, asker: int, origin: int) -> slice:
        start = max(bounds[owner], wanted[asker].start)
        stop = max(min(bounds[owner + 1], wanted[asker].stop), start)
        return slice(start - origin, stop - origin)

    others = [r for r in range(len(wanted)) if r != rank]
    here, there = bounds[rank], wanted[rank].start
    gives = {r: part for r in others if size(part := shared(rank, r, here))}
    gets = {r: part for r in others if size(part := shared(r, rank, there))}
    kept = shared(rank, rank, here)
    if not size(kept):
        return Routes(gives, gets, slice(0, 0), slice(0, 0))
    return Routes(gives, gets, kept, shared(rank, rank, there))


@op
def fetch(
    x: Array,
    *,
    cut: Cut,
    wanted: Sequence[Needed],
    value: float = 0.0,
    width: Mapping[int, Sides] | None = None,
) -> OpResult:
    """The rows ``wanted[rank]`` of an array cut by ``cut``, their border filled with ``value``.

    ``width`` puts such a border on other axes too, so that one copy does it all. Partial to partial. At most
    one message to and from each other rank, and the same going back.
    """
    axis, mine = cut.axis, wanted[cut.comm.rank]
    route, border = routes(cut.bounds, wanted, cut.comm.rank), around(mine, axis, width)
    back = returner(x.shape[axis], cut, route)
    if route.silent and not border:
        return x[along(axis, route.kept)], (back,)  # nothing to bring together: no copy
    y = bordered(x, axis, mine.inside.size, border, value)
    inner = inside(y, border)
    came = exchange(cut.comm, pieces(x, axis, route.gives), pieces(inner, axis, route.gets), Tag.FORWARD)
    inner[along(axis, route.place)] = x[along(axis, route.kept)]
    for source, rows in came().items():
        inner[along(axis, route.gets[source])] = rows
    return y, (lambda g: back(inside(g, border)),)


@op
def take(
    x: Array,
    *,
    cut: Cut,
    wanted: Sequence[Needed],
    value: float = 0.0,
    width: Mapping[int, Sides] | None = None,
) -> OpResult:
    """The rows ``wanted[rank]`` of an array that all ranks hold whole, bordered alike: no message forward.

    Replicated to partial. Going back, gradients return to the rank that ``cut`` names, and all gather them.
    """
    axis, mine = cut.axis, wanted[cut.comm.rank]
    border = around(mine, axis, width)
    back = returner(cut.sizes[cut.comm.rank], cut, routes(cut.bounds, wanted, cut.comm.rank))
    y = rows = x[along(axis, slice(mine.start, mine.stop))]
    if border:
        y = bordered(rows, axis, mine.inside.size, border, value)
        inside(y, border)[...] = rows
    return y, (lambda g: joined(allgather(cut.comm, back(inside(g, border))), axis),)


@op
def nothing(*xs: Array, shape: tuple[int, ...]) -> OpResult:
    """An array without elements, for a rank that has no rows to compute: every gradient is zeros."""
    return array_module(xs[0]).zeros(shape, xs[0].dtype), tuple(map(zeros_of, xs))


def returner(n: int, cut: Cut, route: Routes) -> Callable[[Array], Array]:
    """The way back: from the gradient of what this rank wanted to the whole gradient of its ``n`` rows."""
    axis, kept, place = cut.axis, route.kept, route.place

    def back(g: Array) -> Array:
        if route.silent and size(kept) == n:
            return g[along(axis, place)]
        d = empty(g, axis, n)
        came = exchange(cut.comm, pieces(g, axis, route.gets), pieces(d, axis, route.gives), Tag.GRADIENT)
        d[along(axis, slice(kept.start))] = 0
        d[along(axis, kept)] = g[along(axis, place)]
        d[along(axis, slice(kept.stop, None))] = 0
        for source, rows in came().items():
            d[along(axis, route.gives[source])] += rows
        return d

    return back


def exchange(
    comm: Comm, given: Mapping[int, Array], like: Mapping[int, Array], tag: int
) -> Callable[[], dict[int, Array]]:
    """Start to send each other rank what is given to it, and to receive what is ``like`` what is expected.

    The function returned waits for all of it and gives what came, by rank.
    """
    coming = {r: comm.start_recv(r, tag, x) for r, x in like.items()}
    going = [comm.start_send(x, r, tag) for r, x in given.items()]

    def finish() -> dict[int, Array]:
        came = {r: received() for r, received in coming.items()}
        for sent in going:
            sent()
        return came

    return finish


def pieces(x: Array, axis: int, parts: Mapping[int, slice]) -> dict[int, Array]:
    """Views of ``x``, by rank."""
    return {rank: x[along(axis, part)] for rank, part in parts.items()}


def along(axis: int, part: slice) -> tuple[slice, ...]:
    """The index of a part along an axis."""
    return (*(slice(None),) * axis, part)


def around(needed: Needed, axis: int, others: Mapping[int, Sides] | None) -> dict[int, Sides]:
    """The border by axis, where there is any."""
    border = {**(others or {}), axis: (needed.before, needed.after)}
    return {axis: sides for axis, sides in border.items() if any(sides)}


def empty(x: Array, axis: int, n: int, border: Mapping[int, Sides] | None = None) -> Array:
    """Memory like ``x``'s, in its order, for ``n`` along ``axis`` and a border."""
    shape = [n if i == axis else size for i, size in enumerate(x.shape)]
    for i, sides in (border or {}).items():
        shape[i] += sum(sides)
    return array_module(x).empty_like(x, shape=shape)


def bordered(x: Array, axis: int, n: int, border: Mapping[int, Sides], value: float) -> Array:
    """The same, the border filled with ``value``."""
    y = empty(x, axis, n, border)
    for i, (before, after) in border.items():
        y[along(i, slice(before))] = value
        y[along(i, slice(y.shape[i] - after, None))] = value
    return y


def inside(y: Array, border: Mapping[int, Sides]) -> Array:
    """A view of ``y`` without its border."""
    for axis, (before, after) in border.items():
        y = y[along(axis, slice(before, y.shape[axis] - after))]
    return y


def size(part: slice) -> int:
    return part.stop - part.start
