"""The questions after a lesson: predict, change, prove. ``minigrad lesson 06 --check`` checks the answers.

A lesson's ``questions.py`` is the student's file: for each question a prediction, which is a letter, and one
edit. ``answers.py`` beside it has a ``Question`` for each; a handout has it sealed.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from ..handout.sealed_source import exists, is_right, read_source

QUESTIONS, ANSWERS = "questions.py", "answers.py"


class Question(NamedTuple):
    """The right ``prediction``, and the ``proof`` that the student's edit gets.

    In a handout the prediction is a hash, and there are no edits (sealed_source.py).
    ``proof(student)`` takes the student's module. It returns what the numbers say, in a sentence, and raises
    AssertionError, with the numbers, while the edit is not made. ``edits`` are (old, new) pieces of
    ``questions.py`` that make it.
    """

    prediction: str
    proof: Callable[[ModuleType], str]
    edits: tuple[tuple[str, str], ...]


class Verdict(NamedTuple):
    """What ``--check`` says of question ``number``."""

    number: int
    answered: bool
    text: str


def load(file: Path) -> ModuleType:
    """The module in ``file``; raises what its code raises.

    It is not imported: an import takes the stored bytecode of a file that changes twice in a second.
    """
    module = ModuleType(f"{file.parent.name}_{file.stem}")
    module.__file__ = str(file)
    exec(compile(read_source(file), file, "exec", dont_inherit=True), module.__dict__)
    return module


def questions_of(lesson: Path) -> list[Question]:
    """The questions of the lesson in this folder; raises ValueError where it has none, or no answers."""
    if not (lesson / QUESTIONS).is_file():
        raise ValueError(f"lesson {lesson.name} has no questions")
    if not exists(lesson / ANSWERS):
        raise ValueError(f"there is no {lesson / ANSWERS}, which checks your answers; ask your instructor")
    return list(load(lesson / ANSWERS).QUESTIONS)


def check(lesson: Path, file: Path | None = None) -> list[Verdict]:
    """Check the student's ``file``, by default the lesson's own ``questions.py``.

    Raises ValueError for a file that cannot be run. What a question proves is shown only after a prediction.
    """
    questions, source = questions_of(lesson), file or lesson / QUESTIONS
    try:
        student = load(source)
    except (Exception, SystemExit) as error:
        last = traceback.format_exception_only(error)[-1].strip()
        raise ValueError(f"{source} cannot be run: {last}; mend it, then check again") from error
    return [verdict(number, question, student) for number, question in enumerate(questions, 1)]


def verdict(number: int, question: Question, student: ModuleType) -> Verdict:
    """Whether the question is answered; first the prediction is asked for, then the edit."""
    name = f"PREDICTION_{number}"
    prediction = str(vars(student).get(name, "")).strip().lower()
    if not prediction:
        return Verdict(number, False, f"predict first: write a letter into {name}")
    try:
        shown = question.proof(student)
    except AssertionError as error:
        return Verdict(number, False, f"you predict {prediction}; now make the edit: {error}")
    except Exception as error:
        last = traceback.format_exception_only(error)[-1].strip()
        return Verdict(number, False, f"your edit raises {last}")
    if not is_right(prediction, question.prediction):
        return Verdict(number, False, f"you predicted {prediction}, and it is another: {shown}")
    return Verdict(number, True, f"{prediction} it is: {shown}")


def answered(text: str, questions: Iterable[Question]) -> str:
    """The text of ``questions.py`` with all predictions and edits; raises LookupError if one does not fit."""
    for number, question in enumerate(questions, 1):
        blank = f'PREDICTION_{number} = ""'
        for old, new in ((blank, f'PREDICTION_{number} = "{question.prediction}"'), *question.edits):
            if text.count(old) != 1:
                raise LookupError(f"question {number}: {old!r} stands {text.count(old)} times in {QUESTIONS}")
            text = text.replace(old, new)
    return text
