"""Grading: a submission is held to laws, in a process of its own, and told what is wrong in its words."""

from .assignment import Assignment, find_assignment
from .task import Task, Wrong

__all__ = ["Assignment", "Task", "Wrong", "find_assignment"]
