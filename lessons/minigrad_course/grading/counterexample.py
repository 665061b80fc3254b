"""The search for a case on which a submission breaks a task's law; Hypothesis draws and shrinks the cases."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast
from unittest.mock import patch

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import given as for_all
from hypothesis.errors import Flaky
from hypothesis.internal.conjecture import providers

from backends.comm import run_ranks
from backends.comm.mailboxes import Deadlock, RankFailed

from .assignment import Task, Wrong
from .submission import Submission, on_rank
from .worker.messages import causes_of, line_in

SHRINK_TRIES = 200
SHRINK_SECONDS = 15.0
MAX_TEXT = 2000  # characters of a failure's description

FLAKY = (
    "\nThis case failed, and passed when it was tried again: "
    "does the answer depend on chance, on time, or on what an earlier call left behind?"
)


class BrokenLaw(Exception):
    """A case broke the law. Hypothesis sees this for every failure, so that it shrinks over all of them."""


class StopSearch(BaseException):
    """Shrinking has reached its limit, or the submission's process has ended."""


def counterexample(
    task: Task,
    submission: Any,
    seed_of_cases: int = 0,
    examples: int | None = None,
    *,
    shrink: bool = True,
    on_case: Callable[[Any], None] = lambda case: None,
    on_failure: Callable[[Any], None] = lambda case: None,
) -> str | None:
    """``case: what is wrong`` for the smallest failing case that the search finds; None where all pass.

    The same seed draws the same cases, and on each of them the ranks take the same turns. ``on_case`` is
    called with every case before it is tried, ``on_failure`` with each that failed: the smallest one last.
    """
    failure: list[str] = []
    tries = 0
    first = 0.0

    @seed(seed_of_cases)
    @hypothesis_settings(examples or task.examples, shrink=shrink)
    @for_all(task.cases)
    def law(case: Any) -> None:
        nonlocal tries, first
        if failure:
            tries += 1
            if tries > SHRINK_TRIES or time.monotonic() > first + SHRINK_SECONDS:
                raise StopSearch
        on_case(case)
        problem = check_case(task, submission, case, seed_of_cases)
        if problem is not None:
            first = first or time.monotonic()
            failure[:] = [f"{case}: {problem}"]
            on_failure(case)
            raise StopSearch if isinstance(submission, Submission) and submission._ended() else BrokenLaw

    try:
        with draws_by_seed_only():
            law()
    except Flaky:
        return failure[0] + FLAKY
    except (BrokenLaw, StopSearch):
        return failure[0]
    return None


def hypothesis_settings(examples: int, shrink: bool = False) -> settings:
    """Draw ``examples`` cases, none of them from earlier runs."""
    return settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=[Phase.generate, *([Phase.shrink] if shrink else [])],
        suppress_health_check=cast(list[HealthCheck], list(HealthCheck)),
        report_multiple_bugs=False,
    )


@contextmanager
def draws_by_seed_only() -> Iterator[None]:
    """Let draws depend on the seed alone: Hypothesis also tries numbers of the modules that are loaded."""
    cache, constants = providers.CONSTANTS_CACHE, providers.Constants  # pyright: ignore
    with (
        patch.object(providers, "_get_local_constants", constants),
        patch.object(providers, "CONSTANTS_CACHE", type(cache)(cache.max_size)),
    ):
        yield


def draw_cases(task: Task, seed_of_cases: int, max_ranks: int, count: int) -> list[Any]:
    """At most ``count`` different cases of 2 to ``max_ranks`` ranks, or of 1 where there are no others."""
    cases: dict[str, Any] = {}

    @seed(seed_of_cases)
    @hypothesis_settings(task.examples)
    @for_all(task.cases)
    def collect(case: Any) -> None:
        cases[str(case)] = case

    with draws_by_seed_only():
        collect()
    small = [case for case in cases.values() if case.ranks <= max_ranks]
    candidates = [case for case in small if case.ranks > 1] or small
    return candidates[:: max(1, len(candidates) // count)][:count]


def check_case(task: Task, submission: Any, case: Any, turns: int) -> str | None:
    """The mistake in this case, from the rank with the most informative error; None where the law holds."""
    errors: dict[int, BaseException] = {}  # in the order they were raised

    def work(comm: Any) -> None:
        try:
            task.check(on_rank(submission, comm.rank), case, comm)
        except BaseException as error:  # SystemExit too: one rank's exit must not end the judge
            errors[comm.rank] = error
            raise BrokenLaw from None

    try:
        run_ranks(case.ranks, work, seed=turns)
    except Exception as error:
        causes = [item for item in errors.items() if not is_consequence(item[1])]
        if isinstance(error, BrokenLaw):
            causes += errors.items()
        rank, cause = causes[0] if causes else (None, error)
        file = getattr(submission, "__file__", None)
        return describe_failure(cause, rank if case.ranks > 1 else None, file)
    return None


def is_consequence(error: BaseException) -> bool:
    """Whether another rank's error or a deadlock caused this error; those are more informative."""
    at: BaseException | None = error
    visited: list[BaseException] = []
    while at is not None and not any(at is before for before in visited):
        if isinstance(at, RankFailed | Deadlock):
            return True
        visited.append(at)
        at = at.__cause__ or at.__context__
    return False


def describe_failure(error: BaseException, rank: int | None = None, file: str | None = None) -> str:
    """A rank's error in words, with its last line in ``file``; a Wrong or a Deadlock by its text alone."""
    causes = causes_of(error)
    report = next((cause for cause in causes if isinstance(cause, Wrong | Deadlock)), None)
    if report is not None:
        return shorten(str(report))
    cause = causes[-1]
    message = cause.msg if isinstance(cause, SyntaxError) else cause  # its text names the file, too
    text = f"{type(cause).__name__}: {message}".rstrip(": ")
    if isinstance(cause, NotImplementedError):
        text = f"not written yet ({text})"
    if isinstance(cause, SystemExit):
        text = f"the program was left with exit({cause.code!r})"
    places = [] if rank is None else [f"rank {rank}"]
    lines = [line for error in causes if file and (line := line_in(error, file))]
    if file and lines:
        places.append(f"line {lines[-1]} of {os.path.basename(file)}")
    return shorten(f"{text} ({', '.join(places)})" if places else text)


def shorten(text: str, limit: int = MAX_TEXT) -> str:
    return text if len(text) <= limit else f"{text[: limit - 4]} ..."
