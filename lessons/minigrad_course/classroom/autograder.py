"""What other platforms need to run this grader: a zip for Gradescope, a file for GitHub Classroom.

Gradescope unpacks the zip into /autograder/source and runs its ``setup.sh`` once. For each upload it runs
``run_autograder``, which reads /autograder/submission and writes /autograder/results/results.json.
GitHub Classroom reads .github/classroom/autograding.json or .github/workflows/classroom.yml in the student's
repository.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from string import Template
from typing import Any

from minigrad.files import replacement

from ..grading.assignment import FOLDER, Assignment
from ..grading.grade import TASK_SECONDS
from ..handout.handout import write_handout
from ..handout.repository import repository
from .wheel import GENERATED, write_wheel, write_zip

COURSE, ASSIGNMENTS = "course.toml", "assignments"
PROGRAMS = ("setup.sh", "run_autograder")
MINUTES = int(TASK_SECONDS // 60) + 2  # of a task: it, its parts, and Python's start

SETUP = """#!/usr/bin/env bash
# Gradescope runs this once, when it builds the image. uv finds or installs a Python that is new enough.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if command -v apt-get && [ "$(id -u)" = 0 ]; then
    apt-get update && apt-get install -y python3-venv libseccomp2
fi
python3 -m venv tools
tools/bin/pip install -q uv
export UV_PYTHON_INSTALL_DIR=$PWD/python
tools/bin/uv venv --clear --python '>=3.11' venv
tools/bin/uv pip install --python venv/bin/python source/*.whl
"""

RUN = """#!/usr/bin/env bash
# Gradescope runs this for each submission.
cd "$(dirname "${BASH_SOURCE[0]}")" && exec venv/bin/python -P -m minigrad_course.classroom.upload ASSIGNMENT
"""


def write_gradescope(file: Path, assignment: Assignment, course: Path | None) -> None:
    """Write the zip: the two programs, the wheel, the course file, and an assignment of one's own."""
    content = {
        "setup.sh": SETUP.encode(),
        "run_autograder": RUN.replace("ASSIGNMENT", assignment.name).encode(),
    }
    with tempfile.TemporaryDirectory() as name, repository() as root:
        wheel = write_wheel(Path(name), root)
        content[wheel.name] = wheel.read_bytes()
    if course is not None:
        content[COURSE] = course.read_bytes()
    if is_own(assignment):
        for path in sorted(assignment.folder.rglob("*")):
            if path.is_file() and not set(GENERATED) & set(path.parts):
                inside = path.relative_to(assignment.folder.parent)
                content[f"{ASSIGNMENTS}/{inside.as_posix()}"] = path.read_bytes()
    write_zip(file, content, PROGRAMS)


def is_own(assignment: Assignment) -> bool:
    """Whether the assignment is not one of the wheel's."""
    return assignment.folder.parent != FOLDER.resolve()


def classroom_tests(assignment: Assignment, requirement: str) -> Iterator[dict[str, Any]]:
    """One test for each task. Its seed is the public one, because students can read the file."""
    short = assignment.name.partition("_")[0]
    folder = f" --folder {ASSIGNMENTS}" if is_own(assignment) else ""
    for task in assignment.tasks:
        yield {
            "name": f"{task.name}: {task.title}",
            "setup": f"python3 -m pip install -q '{requirement}'",
            "run": f"minigrad grade {short} submission.py{folder} --task {task.name}",
            "input": "",
            "output": "",
            "comparison": "included",
            "timeout": MINUTES,
            "points": task.points,
        }


WORKFLOW = Template("""name: autograding
on: [push, workflow_dispatch]
permissions:
  checks: write
  actions: read
  contents: read
jobs:
  autograding:
    runs-on: ubuntu-latest
    if: github.actor != 'github-classroom[bot]'
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with:
          python-version: "3.12"
      - run: $setup
$steps
      - uses: classroom-resources/autograding-grading-reporter@v1
        env:
$results
        with:
          runners: $runners
""")

STEP = Template("""      - id: $id
        uses: classroom-resources/autograding-command-grader@v1
        with:
          test-name: $name
          command: $run
          timeout: $timeout
          max-score: $points""")


def as_json(assignment: Assignment, requirement: str) -> str:
    """autograding.json, which the action education/autograding reads."""
    return json.dumps({"tests": list(classroom_tests(assignment, requirement))}, indent=2) + "\n"


def as_workflow(assignment: Assignment, requirement: str) -> str:
    """classroom.yml, a workflow with a step for each task and one that reports the points.

    A string of JSON is a string of YAML, too.
    """
    tests = list(classroom_tests(assignment, requirement))
    ids = [task.name.lower().replace("_", "-") for task in assignment.tasks]
    steps = [
        STEP.substitute(test, id=id, name=json.dumps(test["name"]), run=json.dumps(test["run"]))
        for id, test in zip(ids, tests, strict=True)
    ]
    results = [f"          {id.upper()}_RESULTS: ${{{{ steps.{id}.outputs.result }}}}" for id in ids]
    return WORKFLOW.substitute(
        setup=json.dumps(tests[0]["setup"]),
        steps="\n".join(steps),
        results="\n".join(results),
        runners=",".join(ids),
    )


FORMATS = {".json": as_json, ".yml": as_workflow, ".yaml": as_workflow}


def repository_folder(file: Path) -> str:
    """The folder of the students' repository in which the file must be; ValueError for another name."""
    if file.suffix not in FORMATS:
        raise ValueError(f"--classroom writes autograding.json or classroom.yml, and {file} is neither")
    return ".github/classroom" if file.suffix == ".json" else ".github/workflows"


def write_classroom(file: Path, assignment: Assignment, requirement: str | None) -> Path | None:
    """Write the file in the format of its name, whose tests install ``requirement``.

    Where that is None they install the wheel of a handout, which has no answers and is written beside the
    file; returns its path. Raises ValueError as ``repository_folder``.
    """
    place, wheel = repository_folder(file), None
    if requirement is None:
        with repository() as root, tempfile.TemporaryDirectory() as name:
            write_handout(Path(name), root)
            wheel = write_wheel(file.parent, Path(name).resolve())
        requirement = f"./{place}/{wheel.name}"
    with replacement(file) as part:
        part.write_text(FORMATS[file.suffix](assignment, requirement), encoding="utf-8")
    return wheel
