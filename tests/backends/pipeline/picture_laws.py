"""Laws of backends/pipeline/gantt.py and trace.py: plan and run are drawn alike, and all
bubbles are the plan's.
"""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PolyCollection
from matplotlib.patches import Rectangle

from backends.pipeline import gantt as picture
from backends.pipeline import trace as spans
from backends.pipeline.simulation import Costs, simulate
from backends.pipeline.timetable import span_name
from backends.pipeline.trace import as_trace

times = st.integers(1, 4) | st.fractions(Fraction(1, 3), 3, max_denominator=3)
costs = st.builds(Costs, times, times, st.just(0) | times, st.just(0) | times)


def row_of(event):
    """The letters of an instruction, written another way."""
    kind, _, which = span_name(event.instruction).partition(" ")
    micros, _, chunk = which.partition("/")
    return {"forward": "", "backward": "b", "weight": "w"}[kind] + micros + ["", "'", '"'][int(chunk or 0)]


def every_slot_is_drawn(table, costs, module=picture):
    """The law: an instruction begins in the column of its time and fills its columns; dots fill the rest."""
    plan = simulate(table, costs)
    slots_wide = int(plan.makespan)
    lines = module.slots(as_trace(plan), unit=1).splitlines()
    for rank, line in enumerate(lines[:-1]):
        label, row, share = line.split("|")
        assert label.split() == ["rank", str(rank)]
        assert share == f" {plan.idle(rank) / plan.makespan:.0%} idle"
        cell, rest = divmod(len(row) + 1, slots_wide)
        assert not rest
        expected = ["." + " " * (cell - 1)] * slots_wide
        for event in plan.of(rank):
            first, last = int(event.start), int(event.stop)
            width = (last - first) * cell
            text = row_of(event).ljust(width - 1, "-" if last - first > 1 else " ") + " "
            expected[first:last] = [text] + [""] * (last - first - 1)
        assert row + " " == "".join(expected)


def bubbles_are_the_plans(table, costs, module=spans):
    plan = simulate(table, costs)
    trace = module.as_trace(plan, seconds=0.25)
    assert module.bubble_of(trace) == pytest.approx(plan.bubble, abs=1e-12)
    expected = [float(plan.idle(rank) / plan.makespan) for rank in range(table.ranks)]
    assert module.bubbles_of(trace) == pytest.approx(expected, abs=1e-12)


def boxes_of(axes):
    return [patch for patch in axes.patches if isinstance(patch, Rectangle)]


def pictures_agree(plan, module=picture):
    """The law: a box for each instruction that takes time, where and as long as it is, its number inside."""
    figure = module.figure_of({"": as_trace(plan)})
    (axes,) = figure.axes
    renderer = FigureCanvasAgg(figure).get_renderer()  # one for all texts: each has the picture's size
    events = [event for event in plan.events if event.start < event.stop]
    boxes = boxes_of(axes)
    places = [(b.get_y() + b.get_height() / 2, b.get_x(), b.get_width()) for b in boxes]
    np.testing.assert_allclose(places, [(e.rank, e.start, e.stop - e.start) for e in events])
    assert len([c for c in axes.collections if isinstance(c, PolyCollection)]) == plan.table.ranks
    texts = [text for text in axes.texts if "idle" not in text.get_text()]
    for text, box, event in zip(texts, boxes, events, strict=True):
        inside, around = text.get_window_extent(renderer), box.get_window_extent(renderer)
        assert around.x0 <= inside.x0 and inside.x1 <= around.x1, "a number sticks out of its box"
        assert around.y0 <= inside.y0 and inside.y1 <= around.y1, "a number sticks out of its box"
        assert abs(inside.x0 + inside.x1 - around.x0 - around.x1) < 3, "a number is not in the middle"
        assert text.get_text() == span_name(event.instruction).split()[1].split("/")[0]
    assert f"{plan.bubble:.0%}" in axes.get_title(loc="left")
