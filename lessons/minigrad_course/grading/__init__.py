"""The grader: a submission runs in processes of its own, and laws judge what it returns."""

from .assignment import Assignment, Part, Task, Wrong, find_assignment

__all__ = ["Assignment", "Part", "Task", "Wrong", "find_assignment"]
