"""Max-pooling on a GPU as one kernel each way.

Lecture section: GPU against CPU. Lesson: 04_gpu.
"""

from __future__ import annotations

from collections.abc import Callable

from ...device import Array, array_module, elementwise_kernel

MOST_PLACES = 16  # arrays that one kernel takes; CUDA passes 4 KB of arguments


def max_of_places(
    x: Array, places: list, apart: bool = True, first: Array | int = 0
) -> tuple[Array, Callable[[Array], Array]]:
    """The largest of the elements of x at each of the ``places`` of windows, which are ``apart`` or overlap.

    ``first`` is the number of a window's first place that is no border, whose elements are -inf.

    Backward needs no more than which place it was, a byte per window: the first largest, or the last NaN.
    """
    xp, parts, shape, size = array_module(x), [x[place] for place in places], x.shape, x.size
    y, taker = xp.empty(parts[0].shape, x.dtype), xp.empty(parts[0].shape, xp.uint8)
    largest_kernel(len(places))(*parts, first, y, taker)

    def to_x(g: Array) -> Array:
        covered = taker.size * len(places) == size
        d = (xp.empty if covered and apart else xp.zeros)(shape, g.dtype)
        if not apart:
            for i, place in enumerate(places):
                d[place] += xp.where(taker == i, g, 0)
            return d
        share_kernel(len(places))(g, taker, 0, *(d[place] for place in places))
        return d

    return y, to_x


def largest_kernel(n: int) -> Callable:
    """(x0, x1, ...) -> the largest of them, and which one it is."""
    statements = ["y = x0", "taker = first"]
    for i in range(1, n):
        larger = f"(x{i} > y) | (x{i} != x{i})"
        statements += [f"taker = choose({larger}, {i}, taker)", f"y = choose({larger}, x{i}, y)"]
    inputs = ", ".join([*(f"T x{i}" for i in range(n)), "uint8 first"])
    return elementwise_kernel(inputs, "T y, uint8 taker", "; ".join(statements), f"largest_of_{n}")


def share_kernel(n: int) -> Callable:
    """g where ``taker`` is the number of the output, else zero."""
    statements = [f"d{i} = choose(taker == {i}, g, zero)" for i in range(n)]
    outputs = ", ".join(f"T d{i}" for i in range(n))
    return elementwise_kernel("T g, uint8 taker, T zero", outputs, "; ".join(statements), f"shares_of_{n}")
