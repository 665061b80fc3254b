"""The timetables of pipelined training, by name: naive, GPipe, one forward one backward, ...

Lecture section: pipelining. Lesson: 13_pipeline.
"""

from __future__ import annotations

from .one_way import ONE_WAY
from .schedule import Schedule
from .two_way import TWO_WAY
from .zero_bubble import ZERO_BUBBLE

SCHEDULES: dict[str, Schedule] = {schedule.name: schedule for schedule in (*ONE_WAY, *ZERO_BUBBLE, *TWO_WAY)}


def find_schedule(name: str) -> Schedule:
    """The schedule called ``name``; raises ValueError naming the choices."""
    if name not in SCHEDULES:
        raise ValueError(f"unknown schedule {name!r}; choose one of {', '.join(SCHEDULES)}")
    return SCHEDULES[name]
