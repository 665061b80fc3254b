"""Grades one upload in Gradescope's folders: ``python -m minigrad_course.classroom.upload a2``.

The current folder holds ``source`` (the zip's files), ``submission`` and ``results``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from ..grading.assignment import FOLDER, find_assignment
from ..grading.course import Course
from ..grading.grade import SubmissionFile, check_inside, grade
from ..grading.reports import as_gradescope
from .autograder import ASSIGNMENTS, COURSE

STARTER = "submission.py"


def find_upload(folder: Path) -> SubmissionFile:
    """The file submission.py of an upload, or its only Python file; ValueError where that is unclear."""
    files = sorted(file for file in folder.rglob("*.py") if not file.name.startswith("."))
    named = [file for file in files if file.name == STARTER]
    if len(named or files) != 1:
        count = f"{len(named)} files named {STARTER}" if named else f"{len(files)} Python files"
        raise ValueError(f"there are {count} in the upload; upload one, {STARTER}")
    (file,) = named or files
    check_inside(folder, file)
    return SubmissionFile.read(file)


def grade_upload(root: Path, name: str) -> dict[str, Any]:
    """Gradescope's results for the upload in ``root``; one that cannot be read has 0 points and a reason."""
    source = root / "source"
    folder = source / ASSIGNMENTS if (source / ASSIGNMENTS).is_dir() else FOLDER
    course = Course.read(source / COURSE, folder) if (source / COURSE).is_file() else Course()
    assignment = course.weighted(find_assignment(name, folder))
    try:
        submission = find_upload(root / "submission")
    except ValueError as error:
        return {"score": 0, "output": str(error), "output_format": "text", "visibility": "visible"}
    return as_gradescope(grade(assignment, submission, seed=course.seed_of(assignment)))


if __name__ == "__main__":
    results = grade_upload(Path.cwd(), sys.argv[1])
    (Path.cwd() / "results" / "results.json").write_text(
        json.dumps(results, indent=2) + "\n", encoding="utf-8"
    )
