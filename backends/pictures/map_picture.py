"""A picture of a parameter map: a line for each parameter, and in it a cell for each rank with its part.

Lecture section: model parallelism.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from minigrad.pictures.ends import ends_of
from minigrad.pictures.table import Cell, picture_of

Shape = tuple[int, ...]
Bounds = tuple[tuple[int, int], ...]
"""For each axis of the whole parameter the first index of a part, and the index after its last one."""
MOST_RANKS = 8
WHOLE, PART = "#CFE5F3", "#FBE9C6"


def map_picture(shapes: Mapping[str, Shape], parts: Sequence[Mapping[str, Bounds]]) -> str:
    """The SVG of a map: the ``shapes`` of whole parameters, and the ``parts`` of each rank, by name.

    Of more than MOST_RANKS ranks it shows the first and the last.
    """
    ranks = ends_of(len(parts), MOST_RANKS)
    rows = [
        [
            Cell(name),
            Cell(" x ".join(map(str, shape)) or "1"),
            *(cell_of(parts[rank].get(name), shape) for rank in ranks),
        ]
        for name, shape in shapes.items()
    ]
    sizes = [
        sum(math.prod(stop - start for start, stop in bounds) for bounds in mine.values()) for mine in parts
    ]
    size = sum(math.prod(shape) for shape in shapes.values())
    left_out = len(parts) - len(ranks)
    most = f" to {max(sizes):,}" if max(sizes) > min(sizes) else ""
    last = f"Each rank holds {min(sizes):,}{most} of the {size:,} numbers"
    last += f"; {left_out:,} of {len(parts):,} ranks are left out" if left_out else ""
    title = f"Which of {len(parts)} ranks holds which part of {len(shapes)} parameters"
    return picture_of(title, ["parameter", "shape", *(f"rank {rank}" for rank in ranks)], rows, last=last)


def cell_of(bounds: Bounds | None, shape: Shape) -> Cell:
    """A rank's part as NumPy's slices write it, ``[0:64, :]``; a whole parameter in a word."""
    if bounds is None:
        return Cell("-")
    whole = [part == (0, n) for part, n in zip(bounds, shape, strict=True)]
    if all(whole):
        return Cell("whole", WHOLE)
    slices = (":" if all_of_it else f"{a}:{b}" for all_of_it, (a, b) in zip(whole, bounds, strict=True))
    return Cell(f"[{', '.join(slices)}]", PART)
