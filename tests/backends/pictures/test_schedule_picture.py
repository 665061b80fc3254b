"""Laws of backends/pictures/schedule_picture.py: all schedules, of few and of many ranks, and their text."""

from fractions import Fraction

import hypothesis.strategies as st
import pytest
from hypothesis import given

from backends.pipeline import SCHEDULES, Costs, simulate
from tests.backends.pictures import schedule_picture_laws as laws
from tests.pictures import shown


def picture(table):
    return table._repr_svg_()


@pytest.mark.parametrize("name", SCHEDULES)
def test_an_order_is_drawn_whole(name):
    laws.an_order_is_drawn_whole(picture, SCHEDULES[name].of(2, 4))


@given(
    name=st.sampled_from(["gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"]),
    times=st.tuples(*3 * [st.integers(1, 4)]),
    part=st.sampled_from([1, 3, 7]),
)
def test_times_are_drawn(name, times, part):
    """Of at most 48 instructions, so that none is left out."""
    forward, backward, weight = (Fraction(time, part) for time in times)
    laws.times_are_drawn(picture, SCHEDULES[name].of(2, 4), Costs(forward, backward, weight))


def test_a_long_schedule_stays_small():
    table = SCHEDULES["1f1b"].of(32, 100)
    laws.a_long_schedule_says_what_it_leaves_out(picture, table)
    assert max(len(picture(table)), len(picture(simulate(table)))) < 80_000


def test_very_short_instructions_are_drawn():
    table = SCHEDULES["gpipe"].of(2, 2)
    assert len(shown(picture(simulate(table, Costs(0, 1)))).boxes) == 8
    assert len(shown(picture(simulate(table, Costs(1e-9, 1)))).boxes) == 8


def test_schedules_have_a_text():
    schedule = SCHEDULES["interleaved"]
    assert repr(schedule) == "Schedule('interleaved', chunks=2)"
    assert repr(schedule.of(2, 4)) == "Timetable(interleaved, 2 ranks, 4 micros, 2 chunks)"
    assert repr(simulate(schedule.of(2, 4))).startswith("Simulation(Timetable(interleaved, 2 ranks")
