"""The course: lessons, assignments and their grader."""

from pathlib import Path

HERE = Path(__file__).resolve().parent
INSTALLED = (HERE / "lessons").is_dir()  # in a wheel the lessons lie in this package, in a clone around it
ROOT = HERE.parent if INSTALLED else HERE.parents[1]  # holds minigrad and backends
LESSONS = HERE / "lessons" if INSTALLED else HERE.parent
