"""The schedules by name: naive, GPipe, one forward one backward, ...

Lecture section: pipelining. Lesson: 13_pipeline. Schedules and their checks are loaded by name, since a
pipeline runs any timetable without knowing how it was made.
"""

from __future__ import annotations

from .schedule import Schedule, Timetable


def load(module: str, name: str):
    """An attribute of a module of this package, imported when it is asked for."""
    return getattr(__import__(f"{__package__}.{module}", fromlist=[name]), name)


MODULES = ("unidirectional", "zero_bubble", "bidirectional")
SCHEDULES: dict[str, Schedule] = {s.name: s for module in MODULES for s in load(module, "SCHEDULES")}


def find_schedule(name: str) -> Schedule:
    """The schedule called ``name``; raises ValueError naming the choices."""
    if name not in SCHEDULES:
        raise ValueError(f"unknown schedule {name!r}; choose one of {', '.join(SCHEDULES)}")
    return SCHEDULES[name]


def checked_timetable(schedule: Schedule, ranks: int, micros: int, chunks: int | None = None) -> Timetable:
    """The schedule's timetable for these numbers; raises ValueError as ``validator.check_timetable`` does."""
    return load("validator", "check_schedule")(schedule, ranks, micros, chunks)
