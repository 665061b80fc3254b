"""Assignments and their tasks: what a submission must define, the laws it must keep, and on which cases."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

from backends.comm.communicator import Communicator

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

FOLDER = Path(__file__).parents[1] / "assignments"
TASK_FILES = "a*/tasks.py"


class Wrong(AssertionError):
    """A mistake of the submission, in words for the student; the grader adds the case before them."""


class Case(Protocol):
    """One set of inputs; students read its text, as in ``3 ranks, 7 samples``."""

    @property
    def ranks(self) -> int:
        """The number of ranks, each of which calls the check; 1 where nothing is sent."""
        ...


Check = Callable[[Any, Any, Communicator], None]


@dataclass(frozen=True)
class Task:
    """One graded part of an assignment: it scores all of its points, or none.

    ``check(submission, case, comm)`` runs on every rank of a case and raises Wrong, or AssertionError as the
    laws do. ``broken`` is a wrong answer that the check must refuse: the grader tries it first, so that a
    check which accepts everything is noticed. ``records`` are classes, as ``module:name``, whose instances a
    submission may return.
    """

    name: str
    points: int
    title: str
    cases: SearchStrategy[Any]
    check: Check
    broken: Any
    examples: int = 40
    records: tuple[str, ...] = ()


@dataclass(frozen=True)
class Assignment:
    """A folder ``aN_topic``: README.md, submission.py, tasks.py (``TASKS``), answers.py, instructor.md."""

    folder: Path
    tasks: tuple[Task, ...]

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def points(self) -> int:
        return sum(task.points for task in self.tasks)

    @property
    def starter(self) -> Path:
        return self.folder / "submission.py"

    @property
    def answers(self) -> Path:
        return self.folder / "answers.py"


def load_file(path: Path, name: str) -> ModuleType:
    """The Python file as a module of that name, which stays in ``sys.modules`` (dataclasses need that)."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def find_assignment(name: str, folder: Path = FOLDER) -> Assignment:
    """The assignment ``a2`` or ``a2_allreduce``; raises ValueError, naming all, for another name."""
    paths = sorted(file.parent for file in folder.glob(TASK_FILES))
    for path in paths:
        if name in (path.name, path.name.partition("_")[0]):
            return read_assignment(path)
    if texts := [
        file.parent for file in folder.glob("a*/README.md") if file.parent.name.startswith(f"{name}_")
    ]:
        raise ValueError(f"{texts[0].name} has no tasks.py here, to grade it with; your instructor grades it")
    raise ValueError(f"no assignment {name!r}; there are {', '.join(p.name for p in paths) or 'none'}")


def find_assignments(folder: Path = FOLDER) -> list[Assignment]:
    """All assignments; raises ValueError where there are none."""
    if not (files := sorted(folder.glob(TASK_FILES))):
        raise ValueError(f"there are no assignments in {folder}; leave --folder out, or name another one")
    return [read_assignment(file.parent) for file in files]


def read_assignment(path: Path) -> Assignment:
    tasks = getattr(load_file(path / "tasks.py", f"tasks_of_{path.name}"), "TASKS", None)
    if not tasks:
        raise ValueError(f"{path / 'tasks.py'} defines no TASKS, a tuple of lessons.grading.Task")
    return Assignment(path.resolve(), tuple(tasks))
