"""The grader: a submission runs in processes of its own, and laws judge what it returns."""

from .assignment import Assignment, Task, Wrong, find_assignment

__all__ = ["Assignment", "Task", "Wrong", "find_assignment"]
