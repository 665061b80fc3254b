"""The search for a case on which a submission breaks its law: drawn by Hypothesis, and shrunk by it."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings

from ..comm import run_ranks
from .task import Task, Wrong


def counterexample(
    task: Task, submission: Any, seed_of_cases: int = 0, examples: int | None = None
) -> str | None:
    """``case: what is wrong`` for the smallest case found that breaks the law; None where none was.

    The same seed draws the same cases.
    """
    found: list[str] = []

    @seed(seed_of_cases)
    @settings(
        max_examples=examples or task.examples,
        database=None,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )
    @given(task.cases)
    def law(case: Any) -> None:
        try:
            run_ranks(case.ranks, lambda comm: task.check(submission, case, comm))
        except Exception as error:
            found[:] = [f"{case}: {in_words(error)}"]
            raise

    try:
        law()
    except Exception:
        return found[0]
    return None


def in_words(error: BaseException) -> str:
    """What a rank raised, without the frames; a Wrong alone by its text."""
    cause = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    return str(cause) if isinstance(cause, Wrong) else f"{type(cause).__name__}: {cause}"
