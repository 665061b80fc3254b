"""Laws of backends/grid.py: a grid's groups are the ranks that differ in one coordinate, and
neighbours along the model axis.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.comm import run_ranks
from backends.comm.collectives import allgather
from backends.grid import AXES, Grid, check_grid

shapes = st.tuples(*[st.integers(1, 3)] * len(AXES)).filter(lambda s: np.prod(s) <= 16)


def members(comm):
    """The world ranks of a group, by rank in it."""
    return lambda group: [int(r[0]) for r in allgather(group, np.array([comm.rank]))]


@given(shape=shapes)
def test_every_group_is_a_line_through_the_grid(shape):
    table: np.ndarray = np.arange(np.prod(shape)).reshape(shape)  # the model axis fastest

    def work(comm):
        grid = Grid(comm, **dict(zip(AXES, shape, strict=True)))
        along = [grid.data, grid.pipe, grid.sequence, grid.model]
        return grid.place, [group.rank for group in along], [members(comm)(group) for group in along]

    for rank, (place, ranks, groups) in enumerate(run_ranks(table.size, work)):
        assert np.argwhere(table == rank).tolist() == [list(place)]
        assert tuple(ranks) == place
        lines = [np.moveaxis(table, axis, -1)[*place[:axis], *place[axis + 1 :]] for axis in range(len(AXES))]
        assert groups == [list(line) for line in lines]


@given(shape=shapes)
def test_summing_along_every_axis_sums_over_all_ranks(shape):
    def work(comm):
        grid = Grid(comm, **dict(zip(AXES, shape, strict=True)))
        x = np.array([2.0**comm.rank])
        for group in (grid.model, grid.sequence, grid.pipe, grid.data):
            x = np.sum(allgather(group, x), axis=0)
        return x[0]

    n = int(np.prod(shape))
    assert run_ranks(n, work) == [2.0**n - 1] * n


@pytest.mark.parametrize(
    ("ranks", "axes", "message"),
    [
        (
            6,
            {"data": 2, "pipe": 2, "model": 2},
            "a grid of data 2 x pipe 2 x sequence 1 x model 2 needs 8 ranks, got 6; run with mpiexec -n 8, "
            "or change --data, --pipe, --sequence, --model",
        ),
        (3, {"data": 2}, "needs 2 ranks, got 3; run with mpiexec -n 2"),
        (2, {"data": 2, "model": 0}, "--model must be at least 1, got 0"),
        (2, {"data": -2}, "--data must be at least 1, got -2"),
        (2, {"pipe": 0}, "--pipe must be at least 1, got 0"),
    ],
)
def test_a_grid_that_does_not_fit_the_ranks_is_refused(ranks, axes, message):
    with pytest.raises(ValueError) as refused:
        check_grid(ranks, **axes)
    assert message in str(refused.value)
    with pytest.raises(ValueError):
        run_ranks(ranks, lambda comm: Grid(comm, **axes))
