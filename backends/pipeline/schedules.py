"""The timetables of pipelined training, by name: naive, GPipe, one forward one backward, ...

Lecture section: pipelining. Lesson: 13_pipeline.
"""

from __future__ import annotations

from minigrad.lookup import choices, lookup

from .one_way import ONE_WAY
from .schedule import Schedule
from .two_way import TWO_WAY
from .zero_bubble import ZERO_BUBBLE

SCHEDULES: dict[str, Schedule] = {schedule.name: schedule for schedule in (*ONE_WAY, *ZERO_BUBBLE, *TWO_WAY)}
GROUP = "minigrad.lr_schedules"  # the entry points by which other packages add theirs


def schedule_names() -> list[str]:
    """The names that ``find_schedule`` takes; nothing is imported for them."""
    return choices(SCHEDULES, GROUP)


def find_schedule(name: str) -> Schedule:
    """The schedule called ``name``; raises ValueError naming the choices."""
    schedule = lookup("schedule", name, SCHEDULES, GROUP)
    return schedule if isinstance(schedule, Schedule) else Schedule(schedule, name)
