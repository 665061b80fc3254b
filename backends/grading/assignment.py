"""An assignment: a folder with the text, the starter, the tasks, and the library's own answers."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from .task import Task

FOLDER = Path(__file__).parents[2] / "lessons" / "assignments"


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
    """The Python file as a module of that name, which ``sys.modules`` keeps (dataclasses look there)."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def find_assignment(name: str, folder: Path = FOLDER) -> Assignment:
    """The assignment ``a2`` or ``a2_allreduce``; raises ValueError, naming all there are, for another."""
    known = folders(folder)
    for path in known:
        if name in (path.name, path.name.partition("_")[0]):
            return read_assignment(path)
    raise ValueError(f"no assignment {name!r}; there are {', '.join(p.name for p in known) or 'none'}")


def find_assignments(folder: Path = FOLDER) -> list[Assignment]:
    """All assignments; raises ValueError where there are none."""
    if not (known := folders(folder)):
        raise ValueError(
            f"there are no assignments in {folder}; they come with the repository, name its folder"
        )
    return [read_assignment(path) for path in known]


def folders(folder: Path) -> list[Path]:
    return sorted(path.parent for path in folder.glob("a*/tasks.py"))


def read_assignment(path: Path) -> Assignment:
    tasks = getattr(load_file(path / "tasks.py", f"tasks_of_{path.name}"), "TASKS", None)
    if not tasks:
        raise ValueError(f"{path / 'tasks.py'} defines no TASKS, a tuple of backends.grading.Task")
    return Assignment(path.resolve(), tuple(tasks))
