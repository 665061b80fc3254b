"""Timetables of every schedule, drawn at random."""

from hypothesis import strategies as st

from backends.pipeline.schedules import SCHEDULES


def defined(schedule, ranks=range(1, 7), micros=range(1, 13), chunks=(1, 2, 3)):
    """The timetables of all numbers that the schedule's own check allows."""
    for p in ranks:
        for m in micros:
            for v in chunks:
                try:
                    yield schedule.of(p, m, v)
                except ValueError:
                    continue


@st.composite
def tables(draw):
    schedule = SCHEDULES[draw(st.sampled_from(sorted(SCHEDULES)))]
    return draw(st.sampled_from(list(defined(schedule, range(1, 5), range(1, 7), (1, 2)))))
