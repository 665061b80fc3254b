"""The schedules by name: naive, GPipe, one forward one backward, ...

Lecture section: pipelining. Lesson: 13_pipeline. Schedules and their checks are loaded by name, since a
pipeline runs any timetable without knowing how it was made.
"""

from __future__ import annotations

from minigrad.lookup import choices, lookup

from . import bidirectional, unidirectional, zero_bubble
from .schedule import Schedule, Timetable
from .validator import check_schedule

FAMILIES = (unidirectional, zero_bubble, bidirectional)
SCHEDULES: dict[str, Schedule] = {s.name: s for family in FAMILIES for s in family.SCHEDULES}
GROUP = "minigrad.schedules"  # the entry points by which other packages add theirs


def schedule_names() -> list[str]:
    """The names that ``find_schedule`` takes; nothing is imported for them."""
    return choices(SCHEDULES, GROUP)


def find_schedule(name: str) -> Schedule:
    """The schedule called ``name``; raises ValueError naming the choices."""
    schedule = lookup("schedule", name, SCHEDULES, GROUP)
    return schedule if isinstance(schedule, Schedule) else Schedule(schedule, name)


def checked_timetable(schedule: Schedule, ranks: int, micros: int, chunks: int | None = None) -> Timetable:
    """The schedule's timetable for these numbers; raises ValueError as ``validator.check_timetable`` does."""
    return check_schedule(schedule, ranks, micros, chunks)
