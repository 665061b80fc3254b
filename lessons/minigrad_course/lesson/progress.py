"""What was done in a folder: the lessons that ran, the questions that were answered, the best points.

It stands in ``runs/progress.json`` of the folder in which the commands are run; delete it to begin anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from minigrad.files import replacement

FILE = Path("runs/progress.json")


@dataclass
class Progress:
    """By number of the lesson: whether it ran, [answered, all] questions; by assignment: [points, all]."""

    lessons: dict[str, bool] = field(default_factory=dict)
    answers: dict[str, list[int]] = field(default_factory=dict)
    points: dict[str, list[int]] = field(default_factory=dict)

    @classmethod
    def read(cls) -> Progress:
        """The progress in this folder; none where there is no file, or one that minigrad did not write."""
        try:
            content = json.loads(FILE.read_text(encoding="utf-8"))
            pairs = [pair for name in ("answers", "points") for pair in content[name].values()]
            if all(isinstance(n, int) for pair in pairs for n in pair) and all(len(p) == 2 for p in pairs):
                return cls(dict(content["lessons"]), dict(content["answers"]), dict(content["points"]))
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            pass
        return cls()

    def of_lesson(self, number: str) -> str:
        """A tick for a lesson that ran, and its answers: "✓ 2 of 3"."""
        tick = ["✓"] if self.lessons.get(number) else []
        answers = ["{} of {}".format(*self.answers[number])] if number in self.answers else []
        return " ".join(tick + answers)

    def of_assignment(self, name: str) -> str:
        """The best points, with a tick if these are all: "✓ 100 of 100"."""
        if name not in self.points:
            return ""
        points, most = self.points[name]
        return f"{'✓ ' * (points == most)}{points} of {most}"


@contextmanager
def updated() -> Iterator[Progress]:
    """The progress, which is written at the end of the ``with``; not where this folder cannot be written."""
    progress = Progress.read()
    yield progress
    with suppress(OSError), replacement(FILE) as part:
        part.write_text(json.dumps(asdict(progress), indent=1), encoding="utf-8")


def note_lesson(number: str) -> None:
    """The lesson ran to its end."""
    with updated() as progress:
        progress.lessons[number] = True


def note_answers(number: str, answered: int, questions: int) -> None:
    """So many of the lesson's questions are answered."""
    with updated() as progress:
        progress.answers[number] = [answered, questions]


def note_points(assignment: str, points: int, most: int) -> None:
    """A submission scored these points; the best of all submissions is kept."""
    with updated() as progress:
        best, _ = progress.points.get(assignment, [0, most])
        progress.points[assignment] = [max(points, best), most]
