"""Laws of backends/model_parallel/spatial/halo.py and receptive_field.py: the rows a window needs are the
ones it touches, whoever has them brings them, gradients go back.
"""

from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends import laws
from backends.comm import run_ranks
from backends.comm.trace import Traced
from backends.model_parallel.layers.sharding import Shard
from backends.model_parallel.spatial import halo
from backends.model_parallel.spatial.receptive_field import RowRange, Window
from minigrad import Tape, Tensor
from minigrad.op import op
from tests.backends.comm.sending_laws import is_adjoint
from tests.backends.strict import Strict
from tests.bugs.mutant import mutant

# Geometry

WINDOWS = st.builds(Window, st.integers(1, 7), st.integers(1, 3), st.integers(0, 4), st.integers(1, 3))


@st.composite
def windows_on_rows(draw, ranks=6):
    """A window, how many rows it stands on (the smallest legal number at least), and the ranks' limits."""
    window = draw(WINDOWS)
    n = max(1, window.extent - 2 * window.padding) + draw(st.integers(0, 12))
    return window, n, bounds_of(draw, n, draw(st.integers(1, ranks)))


def bounds_of(draw, n, ranks):
    """Limits of parts of ``n`` rows: any, empty ones too."""
    inner = draw(st.lists(st.integers(0, n), min_size=ranks - 1, max_size=ranks - 1))
    return (0, *sorted(inner), n)


@pytest.mark.parametrize(
    ("window", "halo"),
    [
        (Window(3, 1, 1), (1, 1)),
        (Window(5, 1, 2), (2, 2)),
        (Window(7, 1, 3), (3, 3)),
        (Window(3, 1, 2, 2), (2, 2)),
        (Window(3, 2, 1), (1, 0)),
        (Window(7, 2, 3), (3, 2)),
        (Window(2, 2, 0), (0, 0)),
        (Window(3, 2, 0), (0, 1)),
        (Window(1, 1, 0), (0, 0)),
    ],
)
def test_the_table_of_halos(window, halo):
    assert window.halo == halo


def touched(window, output):
    """The rows that one output looks at, one tap at a time; those of the border are below 0 or above n."""
    return [output * window.stride - window.padding + tap * window.dilation for tap in range(window.kernel)]


@given(windows_on_rows())
def test_needed_rows_are_those_that_the_taps_touch(case):
    window, n, bounds = case
    limits = window.output_bounds(bounds)
    for first, last in pairwise(limits):
        needed = window.receptive_field(first, last, n)
        rows = [row for output in range(first, last) for row in touched(window, output)]
        if not rows:
            assert needed == RowRange(0, 0)
            continue
        assert needed.size == max(rows) - min(rows) + 1
        assert {row for row in range(n) if min(rows) <= row <= max(rows)} == set(range(*needed[:2]))
        assert needed.start - needed.before == min(rows) or needed.start == needed.stop
        assert min(needed.before, needed.after) >= 0


@given(windows_on_rows())
def test_every_output_is_computed_once_by_who_has_the_row_it_begins_at(case):
    window, n, bounds = case
    limits = window.output_bounds(bounds)
    count = len([o for o in range(n + 2 * window.padding) if touched(window, o)[-1] < n + window.padding])
    assert limits[0] == 0 and limits[-1] == count == window.outputs(n) and sorted(limits) == [*limits]
    for (first, last), (start, stop) in zip(pairwise(limits), pairwise(bounds), strict=True):
        inside = [o for o in range(first, last) if o * window.stride < n]
        assert all(start <= o * window.stride < stop for o in inside)


@given(WINDOWS, st.integers(2, 5), st.integers(13, 16))
def test_interior_halos_are_padding_and_extent_less_stride_less_padding(window, ranks, outputs):
    """Where inputs begin at stride times the outputs, and every tile is larger than any halo."""
    rows = outputs * window.stride
    bounds = tuple(range(0, (ranks + 1) * rows, rows))
    for rank, limits in enumerate(pairwise(window.output_bounds(bounds))):
        rows = window.receptive_field(*limits, bounds[-1])
        assert bounds[rank] - rows.start == (window.halo[0] if rank else 0)
        assert max(0, rows.stop - bounds[rank + 1]) == (window.halo[1] if rank < ranks - 1 else 0)


# The ops


@st.composite
def wishes(draw):
    """Limits of what ranks have, and any rows that each wants: several owners', none, border only."""
    n, ranks = draw(st.integers(0, 9)), draw(st.integers(1, 6))
    bounds = bounds_of(draw, n, ranks)
    expected = []
    for _ in range(ranks):
        start, stop = sorted(draw(st.tuples(st.integers(0, n), st.integers(0, n))))
        expected.append(RowRange(start, stop, draw(st.integers(0, 2)), draw(st.integers(0, 2))))
    sides = draw(st.sampled_from([(0, 0), (0, 0), (2, 1), (0, 3)]))
    return bounds, expected, draw(st.sampled_from([0, 1])), sides, draw(st.integers(0, 2**16))


def whole_of(n, axis, seed):
    return laws.integers((n, 3) if axis == 0 else (2, n), seed)


def bordered(x, axis, needed, value, sides=(0, 0)):
    """What the ops promise, from the whole array; ``sides`` are the other axis's."""
    rows = x.take(np.arange(needed.start, needed.stop), axis)
    width = [sides, sides]
    width[axis] = needed.before, needed.after
    return np.pad(rows, width, constant_values=value)


def obeys(module, whole, case):
    bounds, expected, axis, sides, seed = case
    width = {1 - axis: sides} if any(sides) else None

    def work(comm):
        comm = Strict(comm)
        shard = Shard(axis, comm, bounds)
        image = whole_of(bounds[-1], axis, seed)
        x = image if whole else shard.local_part(image)
        before = x.copy()
        op = partial(module.fetch, shard=shard, needed=expected, width=width, whole=whole)
        actual = op(x, value=7.0).data
        np.testing.assert_array_equal(actual, bordered(image, axis, expected[comm.rank], 7.0, sides))
        is_adjoint(op, comm, x, seed=seed, replicated_in=whole)
        np.testing.assert_array_equal(x, before)

    run_ranks(len(expected), work, rendezvous=seed % 2 == 1)


@pytest.mark.parametrize("whole", [False, True])
@given(case=wishes())
def test_everyone_gets_what_it_wants_and_the_pullback_is_the_adjoint(whole, case):
    obeys(halo, whole, case)


@given(windows_on_rows(ranks=3), windows_on_rows(ranks=2), st.integers(0, 2**16))
def test_rows_then_columns_bring_the_corners(rows, columns, seed):
    (down, height, row_bounds), (right, width, column_bounds) = rows, columns
    tall, wide = len(row_bounds) - 1, len(column_bounds) - 1
    whole = laws.integers((height, width), seed)

    def work(comm):
        row, column = divmod(comm.rank, wide)
        cuts = (
            Shard(0, comm.split(column, row), row_bounds),
            Shard(1, comm.split(row, column), column_bounds),
        )
        reference = [
            [
                window.receptive_field(*limits, shard.length)
                for limits in pairwise(window.output_bounds(shard.bounds))
            ]
            for window, shard in zip((down, right), cuts, strict=True)
        ]

        def fetch(x):
            for shard, needed in zip(cuts, reference, strict=True):
                x = halo.fetch(x, shard=shard, needed=needed)
            return x

        mine = cuts[1].local_part(cuts[0].local_part(whole))
        expected = bordered(whole, 0, reference[0][row], 0)
        np.testing.assert_array_equal(fetch(mine).data, bordered(expected, 1, reference[1][column], 0))
        is_adjoint(fetch, comm, mine, seed=seed)

    run_ranks(tall * wide, work, rendezvous=seed % 2 == 1)


@given(windows_on_rows())
def test_what_is_sent_are_the_halos_and_nothing_else(case):
    """One message for each pair of ranks of which one needs what the other has; the same going back."""
    window, n, bounds = case
    expected = [window.receptive_field(*limits, n) for limits in pairwise(window.output_bounds(bounds))]
    shared = [
        [len({*range(*owned)} & {*range(*needed[:2])}) for needed in expected] for owned in pairwise(bounds)
    ]

    def work(comm):
        traced = Traced(comm)
        shard = Shard(0, traced, bounds)
        leaf = Tensor(shard.local_part(np.ones((n, 3))), requires_grad=True)
        others = [r for r in range(comm.size) if r != comm.rank]
        with Tape() as tape:
            y = halo.fetch(leaf, shard=shard, needed=expected)
        given_away = [shared[comm.rank][r] for r in others if shared[comm.rank][r]]
        assert traced.record.ledger.sent() == (len(given_away), sum(given_away) * 24)
        tape.backward(y, np.ones(y.shape))
        got = [shared[r][comm.rank] for r in others if shared[r][comm.rank]]
        assert traced.record.ledger.sent() == (len(given_away + got), sum(given_away + got) * 24)

    run_ranks(len(expected), work)


@pytest.mark.parametrize("order", ["channels-last", "C"])
def test_images_keep_their_memory_order(order):
    def work(comm):
        def lies_in_order(x):
            return x.transpose((0, 2, 3, 1) if order == "channels-last" else (0, 1, 2, 3)).flags.c_contiguous

        @op
        def watched(x):
            assert lies_in_order(x)
            return x, (lambda g: watched(g).data,)

        x = np.ones((2, 4, 5, 3)).transpose(0, 3, 1, 2) if order == "channels-last" else np.ones((2, 3, 4, 5))
        leaf = Tensor(x, requires_grad=True)
        expected = [RowRange(0, 5, 1), RowRange(3, 9), RowRange(7, 12, 0, 1)]
        with Tape() as tape:
            y = watched(halo.fetch(watched(leaf), shard=Shard(2, comm, (0, 4, 8, 12)), needed=expected))
        tape.backward(y, y.data)

    run_ranks(3, work)


def test_rows_that_nobody_else_has_or_wants_are_not_copied():
    def work(comm):
        shard = Shard(0, comm, (0, 4, 6))
        x = np.ones((shard.sizes[comm.rank], 2))
        expected = [RowRange(0, 3), RowRange(4, 6)]
        assert np.shares_memory(halo.fetch(x, shard=shard, needed=expected).data, x)

    run_ranks(2, work)


# Bugs: each turns the laws red.

BUGS = {
    "what is given begins one row late": (
        "slice(start - origin, stop - origin)", "slice(start - origin + (owner != asker), stop - origin + "
        "(owner != asker))",
    ),
    "gradients of the halo are dropped": ("d[index_along(axis, route.sends[source])] += rows", "pass"),
    "gradients of the halo replace its owner's": (
        "d[index_along(axis, route.sends[source])] += rows",
        "d[index_along(axis, route.sends[source])] = rows",
    ),
    "rows that nobody wants have a gradient": (
        "d[index_along(axis, slice(own_rows.stop, None))] = 0",
        "d[index_along(axis, slice(own_rows.stop, None))] = 1",
    ),
    "the border travels": (
        "max(bounds[owner], needed[asker].start)", "max(bounds[owner], needed[asker].start - 1)",
    ),
    "the border is not filled": ("y[index_along(i, slice(before))] = value", "pass"),
    "only one axis has a border": ("{**(others or {}), axis: ", "{axis: "),
    "only the nearest neighbours are asked": (
        "others = [r for r in range(len(needed)) if r != rank]",
        "others = [r for r in range(len(needed)) if abs(r - rank) == 1]",
    ),
    "take keeps its own gradients": (
        "concatenate(allgather(shard.comm, back(inside(g, border))), axis)",
        "concatenate(allgather(shard.comm, inside(g, "
        "border)[index_along(axis, slice(*(n - mine.start for n in (shard.local_slice.start, "
        "shard.local_slice.stop))))]), axis)",
    ),
}  # fmt: skip
CASE = ((0, 3, 4, 7), [RowRange(0, 5, 1), RowRange(2, 6), RowRange(3, 6, 0, 2)], 0, (1, 0), 4)


@pytest.mark.parametrize("bug", BUGS)
def test_the_laws_see_the_bug(bug):
    broken = mutant("backends.model_parallel.spatial.halo", BUGS[bug])
    with pytest.raises((AssertionError, ValueError, RuntimeError)):
        for whole in (False, True):
            for axis in (0, 1):
                obeys(broken, whole, (*CASE[:2], axis, *CASE[3:]))
