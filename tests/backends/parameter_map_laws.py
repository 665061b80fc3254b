"""Laws of backends/parameter_map.py and backends/pictures/map_picture.py: a map says of every element of
every parameter which ranks hold it, and a picture says what the map does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import numpy as np

from backends.comm import Communicator, run_ranks
from backends.parameter_map import ParameterMap
from minigrad.module import Module
from minigrad.strategy import Strategy
from minigrad.tensor import Parameter
from tests.pictures import shown

Make = Callable[[Communicator, Module], ParameterMap]


def maps_are_what_ranks_hold(
    make: Make, ranks: int, build: Callable[[], Module], strategy: Callable[[Communicator], Strategy]
) -> ParameterMap:
    """Each rank's array is the serial model's at the place that the map names; all ranks get one map."""

    def work(comm: Communicator) -> tuple[ParameterMap, Mapping[str, np.ndarray]]:
        model = strategy(comm).place(build())
        named = {name: getattr(owner, attribute) for name, owner, attribute in model.named_arrays()}
        arrays = {name: p.data.copy() for name, p in named.items() if isinstance(p, Parameter)}
        return make(comm, model), arrays

    serial = build().named_parameters()
    results = run_ranks(ranks, work)
    first = results[0][0]
    assert first.shapes.keys() == {*serial.keys()}, f"the map has {[*first.shapes]}"
    assert len(first.parts) == ranks
    holders = {name: np.zeros(p.shape, int) for name, p in serial.items()}
    for rank, (one, arrays) in enumerate(results):
        assert one == first, f"rank {rank} has another map"
        assert one.parts[rank].keys() == arrays.keys(), f"rank {rank} holds {[*arrays]}"
        for name, bounds in one.parts[rank].items():
            place = tuple(slice(*part) for part in bounds)
            whole = serial[name].data
            assert one.shapes[name] == whole.shape, f"{name} has shape {one.shapes[name]}"
            assert np.array_equal(whole[place], arrays[name]), f"{name}: rank {rank} has not {bounds}"
            holders[name][place] += 1
    for name, count in holders.items():
        assert count.min() == count.max() >= 1, f"{name} is held {count.min()} to {count.max()} times"
    return first


def a_map_is_drawn_whole(picture: Callable[[ParameterMap], str], parameters: ParameterMap) -> None:
    """A line for each parameter, and in it the part of each rank; the numbers that ranks hold."""
    got = shown(picture(parameters))
    ranks = len(parameters.parts)
    shown_ranks = [*range(ranks)] if ranks <= 8 else [*range(4), *range(ranks - 4, ranks)]
    headings, *lines, (last,) = got.rows(1)
    assert headings == ["parameter", "shape", *(f"rank {rank}" for rank in shown_ranks)]
    assert [line[0] for line in lines] == [*parameters.shapes]
    sizes = [0] * ranks
    for name, shape, *cells in lines:
        whole = parameters.shapes[name]
        assert shape == (" x ".join(map(str, whole)) or "1")
        for rank, cell in zip(shown_ranks, cells, strict=True):
            bounds = parameters.parts[rank].get(name)
            assert (cell == "-") == (bounds is None), f"{name} on rank {rank}: {cell}"
            if bounds is not None:
                read = slices_in(cell, whole)
                assert read == bounds, f"{name} on rank {rank}: {cell} is {read}, held are {bounds}"
    for rank, parts in enumerate(parameters.parts):
        sizes[rank] = sum(
            np.zeros(parameters.shapes[n])[tuple(slice(*b) for b in p)].size for n, p in parts.items()
        )
    size = sum(np.zeros(shape).size for shape in parameters.shapes.values())
    most = f" to {max(sizes):,}" if max(sizes) > min(sizes) else ""
    left_out = f"; {ranks - 8:,} of {ranks:,} ranks are left out" if ranks > 8 else ""
    assert last == f"Each rank holds {min(sizes):,}{most} of the {size:,} numbers{left_out}", last


def slices_in(cell: str, shape: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """The bounds that "whole" or "[0:64, :]" names."""
    if cell == "whole":
        return tuple((0, n) for n in shape)
    words = re.fullmatch(r"\[(.*)\]", cell)
    assert words is not None, cell
    parts = zip(words[1].split(", "), shape, strict=True)
    ends = ((word.partition(":"), n) for word, n in parts)
    return tuple((int(a or 0), int(b or n)) for (a, _, b), n in ends)
