"""Assignments and their tasks: what a submission must define, the laws it must keep, and on which cases."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

from backends.comm.communicator import Communicator
from minigrad.lookup import check_choice

from .. import LESSONS
from ..handout.sealed_source import exists, read_source

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

FOLDER = LESSONS / "assignments"
TASKS = "tasks.py"
ANSWERS = "answers.py"


class Wrong(AssertionError):
    """A mistake of the submission, in words for the student; the grader adds the case before them."""


class Case(Protocol):
    """One set of inputs; students read its text, as in ``3 ranks, 7 samples``."""

    @property
    def ranks(self) -> int:
        """The number of ranks, each of which calls the check; 1 where nothing is sent."""
        ...


Check = Callable[[Any, Any, Communicator], None]


def always(case: Any) -> bool:
    return True


@dataclass(frozen=True)
class Part:
    """Easier conditions for a task: a submission that fails the task, but not these, earns a ``share``.

    ``where`` selects the cases. ``supplied`` are names of the assignment's ``answers.py``: those functions
    take the place of the submission's own, so a mistake in them costs this task nothing. ``title`` ends a
    sentence that begins with "right".
    """

    title: str
    share: float
    where: Callable[[Any], bool] = always
    supplied: tuple[str, ...] = ()


@dataclass(frozen=True)
class Task:
    """One graded item of an assignment. A submission that fails it earns the best of its ``parts``, or 0.

    ``check(submission, case, comm)`` runs on every rank of a case and raises Wrong, or AssertionError as the
    laws do. ``broken`` is a wrong answer that the check must refuse: the grader tries it first, so that a
    check which accepts everything is noticed.
    """

    name: str
    points: int
    title: str
    cases: SearchStrategy[Any]
    check: Check
    broken: Any
    examples: int = 40
    parts: tuple[Part, ...] = ()

    def under(self, part: Part | None) -> Task:
        """The task on the cases of ``part``."""
        return self if part is None else replace(self, cases=self.cases.filter(part.where))


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

    def only(self, name: str) -> Assignment:
        """The assignment with this task alone; raises ValueError, naming all, for another name."""
        check_choice("task", name, [task.name for task in self.tasks])
        return replace(self, tasks=tuple(task for task in self.tasks if task.name == name))

    @property
    def starter(self) -> Path:
        return self.folder / "submission.py"

    @property
    def answers(self) -> Path:
        return self.folder / ANSWERS


def load_file(path: Path, name: str) -> ModuleType:
    """The Python file as a module of that name, which stays in ``sys.modules`` (dataclasses need that).

    In a handout the file may be sealed.
    """
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module
    exec(compile(read_source(path), path, "exec", dont_inherit=True), module.__dict__)
    return module


def find_assignment(name: str, folder: Path = FOLDER) -> Assignment:
    """The assignment ``a2`` or ``a2_allreduce``; raises ValueError, naming all, for another name."""
    paths = graded_folders(folder)
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
    if not (paths := graded_folders(folder)):
        raise ValueError(f"there are no assignments in {folder}; leave --folder out, or name another one")
    return [read_assignment(path) for path in paths]


def graded_folders(folder: Path) -> list[Path]:
    """The folders of the assignments whose tasks are here."""
    return sorted((path for path in folder.glob("a*") if exists(path / TASKS)), key=order_of)


def order_of(folder: Path) -> tuple[int, str]:
    """A key that sorts ``a2_allreduce`` before ``a10_ring_attention``."""
    return len(folder.name.partition("_")[0]), folder.name


def read_assignment(path: Path) -> Assignment:
    tasks = getattr(load_file(path / TASKS, f"tasks_of_{path.name}"), "TASKS", None)
    if not tasks:
        raise ValueError(f"{path / TASKS} defines no TASKS, a tuple of minigrad_course.grading.Task")
    return Assignment(path.resolve(), tuple(tasks))
