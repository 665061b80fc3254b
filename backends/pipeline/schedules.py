"""The schedules by name: naive, GPipe, one forward one backward, ...

Lecture section: pipelining. Lesson: 13_pipeline. A pipeline runs any timetable, so other packages may add
schedules.
"""

from __future__ import annotations

from minigrad.lookup import choices, lookup

from . import bidirectional, unidirectional, v_shaped, zero_bubble
from .schedule import Schedule

FAMILIES = (unidirectional, zero_bubble, bidirectional, v_shaped)
SCHEDULES: dict[str, Schedule] = {s.name: s for family in FAMILIES for s in family.SCHEDULES}
GROUP = "minigrad.schedules"  # the entry points by which other packages add theirs


def schedule_names() -> list[str]:
    """The names that ``find_schedule`` takes; nothing is imported for them."""
    return choices(SCHEDULES, GROUP)


def find_schedule(name: str) -> Schedule:
    """The schedule called ``name``; raises ValueError naming the choices."""
    schedule = lookup("schedule", name, SCHEDULES, GROUP)
    return schedule if isinstance(schedule, Schedule) else Schedule(schedule, name)
