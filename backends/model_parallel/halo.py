"""Each rank gets the rows it needs from whoever has them, and sends their gradients back, where they add up.

Lecture section: model parallelism in space. Lesson: 12_spatial. Only rows that exist travel; the
border around the image is made where it is needed. Rows and columns are fetched one after the other, so that
corners come by way of a neighbour.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from minigrad.device import Array, array_module
from minigrad.op import Pulled, op

from ..comm.adjoint import joined, zeros_of
from ..comm.collectives import allgather
from ..comm.collectives.exchange import Tag
from ..comm.protocol import Comm
from .activation import Cut
from .geometry import Needed


class Routes(NamedTuple):
    """Which rows one rank gives to each other and gets from each, and which it keeps; none of them empty
    but, perhaps, the last.

    ``gives`` and ``kept`` are rows of what it has, ``gets`` and ``place`` of what it wants.
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
    here, there = bounds[rank], wanted[rank].start - wanted[rank].before
    gives = {r: part for r in others if size(part := shared(rank, r, here))}
    gets = {r: part for r in others if size(part := shared(r, rank, there))}
    kept = shared(rank, rank, here)
    if not size(kept):
        return Routes(gives, gets, slice(0, 0), slice(0, 0))
    return Routes(gives, gets, kept, shared(rank, rank, there))


@op
def fetch(x: Array, *, cut: Cut, wanted: Sequence[Needed], value: float = 0.0) -> Pulled:
    """The rows ``wanted[rank]`` of an array cut by ``cut``, their border filled with ``value``.

    Partial to partial. At most one message to and from each other rank, and the same going back.
    """
    axis, mine = cut.axis, wanted[cut.comm.rank]
    route = routes(cut.bounds, wanted, cut.comm.rank)
    back = returner(x.shape[axis], cut, route)
    if route.silent and not mine.border:
        return x[along(axis, route.kept)], (back,)  # nothing to bring together: no copy
    y = bordered(x, axis, mine, value)
    came = exchange(cut.comm, pieces(x, axis, route.gives), pieces(y, axis, route.gets), Tag.FORWARD)
    y[along(axis, route.place)] = x[along(axis, route.kept)]
    for source, rows in came.items():
        y[along(axis, route.gets[source])] = rows
    return y, (back,)


@op
def take(x: Array, *, cut: Cut, wanted: Sequence[Needed], value: float = 0.0) -> Pulled:
    """The rows ``wanted[rank]`` of an array that all ranks hold whole: no message forward.

    Replicated to partial. Going back, gradients return to the rank that ``cut`` names, and all gather them.
    """
    axis, mine = cut.axis, wanted[cut.comm.rank]
    back = returner(cut.sizes[cut.comm.rank], cut, routes(cut.bounds, wanted, cut.comm.rank))
    y = x[along(axis, slice(mine.start, mine.stop))]
    if mine.border:
        rows, y = y, bordered(x, axis, mine, value)
        y[along(axis, slice(mine.before, mine.size - mine.after))] = rows
    return y, (lambda g: joined(allgather(cut.comm, back(g)), axis),)


@op
def nothing(*xs: Array, shape: tuple[int, ...]) -> Pulled:
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
        for source, rows in came.items():
            d[along(axis, route.gives[source])] += rows
        return d

    return back


def exchange(comm: Comm, given: Mapping[int, Array], like: Mapping[int, Array], tag: int) -> dict[int, Array]:
    """Send each other rank what is given to it; what comes, ``like`` what is expected, by rank.

    Everything is started before anything is waited for.
    """
    coming = {r: comm.start_recv(r, tag, x) for r, x in like.items()}
    going = [comm.start_send(x, r, tag) for r, x in given.items()]
    came = {r: finish() for r, finish in coming.items()}
    for finish in going:
        finish()
    return came


def pieces(x: Array, axis: int, parts: Mapping[int, slice]) -> dict[int, Array]:
    """Views of ``x``, by rank."""
    return {rank: x[along(axis, part)] for rank, part in parts.items()}


def along(axis: int, part: slice) -> tuple[slice, ...]:
    """The index of a part along an axis."""
    return (*(slice(None),) * axis, part)


def empty(x: Array, axis: int, n: int) -> Array:
    """Memory like ``x``'s, in its order, with ``n`` along ``axis``."""
    return array_module(x).empty_like(x, shape=(*x.shape[:axis], n, *x.shape[axis + 1 :]))


def bordered(x: Array, axis: int, needed: Needed, value: float) -> Array:
    """Memory like ``x``'s for the rows needed, their border filled with ``value``."""
    y = empty(x, axis, needed.size)
    y[along(axis, slice(needed.before))] = value
    y[along(axis, slice(needed.size - needed.after, None))] = value
    return y


def size(part: slice) -> int:
    return part.stop - part.start
