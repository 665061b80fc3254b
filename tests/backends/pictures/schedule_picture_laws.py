"""Laws of backends/pictures/schedule_picture.py: a picture of a schedule has each instruction once, on the
line of its rank, in order, and where times are known at its time.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from backends.pipeline import Costs, simulate
from backends.pipeline.simulation import Simulation
from backends.pipeline.timetable import Backward, Forward, Instruction, Timetable
from tests.pictures import Box, Shown, shown


def said_by(i: Instruction) -> str:
    """An instruction as the legend of the picture says: b for backward, w for weights, marks for chunks."""
    letter = "" if isinstance(i, Forward) else "b" if isinstance(i, Backward) else "w"
    first, last = i.micros[0], i.micros[-1]
    assert i.micros == tuple(range(first, last + 1))
    chunk = {0: "", 1: "'", 2: '"'}.get(i.chunk, f"/{i.chunk}")
    return f"{letter}{first}{f'-{last}' if last > first else ''}{chunk}"


def boxes_of(got: Shown) -> list[list[Box]]:
    """The boxes of each line from top to bottom, from left to right."""
    tops = sorted({box.top for box in got.boxes})
    return [sorted(box for box in got.boxes if box.top == top) for top in tops]


def an_order_is_drawn_whole(picture: Callable[[Timetable], str], table: Timetable) -> None:
    """The labels of each rank in the order of its instructions, in boxes of one width."""
    got = shown(picture(table))
    for rank, (line, mine) in enumerate(zip(got.rows(1), table.instructions, strict=False)):
        *labels, first, last = line
        assert (first, last) == (f"rank {rank}", f"{len(mine)} instructions"), (
            f"rank {rank} ends in {line[-2:]}"
        )
        assert labels == [said_by(i) for i in mine], f"rank {rank} is drawn as {labels}"
    widths = {round(box.right - box.left, 3) for box in got.boxes}
    assert len(widths) == 1, f"boxes have the widths {widths}"
    counts = [len(boxes) for boxes in boxes_of(got)]
    assert counts == [len(mine) for mine in table.instructions], f"{counts} boxes"


def times_are_drawn(picture: Callable[[Simulation], str], table: Timetable, costs: Costs) -> None:
    """A box stands where its instruction starts and stops, and idle times are what is left of the whole."""
    simulation = simulate(table, costs)
    got = shown(picture(simulation))
    whole = max(Fraction(event.stop) for event in simulation.events)
    lines = boxes_of(got)
    events = sorted((event.start, event.rank, event.stop) for event in simulation.events)
    (begin, first, _), (end, other, _) = events[0], events[-1]
    unit = (lines[other][-1].left - lines[first][0].left) / float(end - begin)
    starts = set()
    busy_of_all = Fraction(0)
    for rank, boxes in enumerate(lines):
        events = simulation.of(rank)
        assert len(boxes) == len(events), (
            f"rank {rank} has {len(boxes)} boxes, and {len(events)} instructions"
        )
        for box, event in zip(boxes, events, strict=True):
            length = float(event.stop - event.start)
            assert abs((box.right - box.left) / unit - length) < 0.01, f"{event} is drawn {box}"
            starts.add(round(box.left - unit * float(event.start), 2))
        busy = sum((Fraction(event.stop - event.start) for event in events), Fraction(0))
        busy_of_all += busy
        words = got.rows(1)[rank]
        assert words[-1] == f"idle {float(whole - busy):g} of {float(whole):g}", f"rank {rank}: {words[-1]}"
    assert max(starts) - min(starts) <= 0.1, f"time 0 stands at {starts}"
    share = 1 - busy_of_all / (table.ranks * whole)
    assert got.title.endswith(f": it takes {float(whole):g}, and {float(share):.1%} of it is idle"), got.title


def a_long_schedule_says_what_it_leaves_out(picture: Callable[[Timetable], str], table: Timetable) -> None:
    """The ends of its ranks and times are drawn, and what is not is counted."""
    got = shown(picture(table))
    count = sum(map(len, table.instructions))
    ranks = [int(words[-2].removeprefix("rank ")) for words in got.rows(1)[:-1]]
    half = list(range(4))
    assert ranks == [*half, *range(table.ranks - 4, table.ranks)], f"ranks {ranks} are drawn"
    said = f"; {count - len(got.boxes):,} of {count:,} instructions are left out"
    assert got.rows(1)[-1][0].endswith(said), got.rows(1)[-1]
    labels = got.rows(1)[0][:-2]
    mine = [said_by(i) for i in table.instructions[0]]
    assert labels == [*mine[:32], *mine[-32:]], f"rank 0 is drawn as {labels}"
