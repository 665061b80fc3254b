"""The search for a case on which a submission breaks its law: drawn by Hypothesis, and shrunk by it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast
from unittest.mock import patch

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Flaky
from hypothesis.internal.conjecture import providers

from ..comm.threads import Deadlock, RankFailed, run_ranks
from .given import Given, on_rank
from .raised import chain, line_in
from .task import Task, Wrong

SHRINKING = 200  # tries at making the case smaller
SHRINKING_SECONDS = 15.0
LONGEST = 2000  # characters of what is said

FLAKY = (
    "\nThis case failed, and passed when it was tried again: "
    "does the answer depend on chance, on time, or on what an earlier call left behind?"
)


class Broken(Exception):
    """A case broke the law; what Hypothesis sees of every failure, so that it shrinks over all of them."""


class Enough(BaseException):
    """The shrinking has lasted long enough, or there is no submission any more."""


def counterexample(
    task: Task,
    submission: Any,
    seed_of_cases: int = 0,
    examples: int | None = None,
    *,
    shrink: bool = True,
    watch: Callable[[str], None] = lambda case: None,
) -> str | None:
    """``case: what is wrong`` for the smallest case found that breaks the law; None where none was.

    The same seed draws the same cases, and on each the ranks take the same turns. ``watch`` is told every
    case before it is tried.
    """
    found: list[str] = []
    tries = 0
    first = 0.0

    @seed(seed_of_cases)
    @drawing(examples or task.examples, shrink=shrink)
    @given(task.cases)
    def law(case: Any) -> None:
        nonlocal tries, first
        if found:
            tries += 1
            if tries > SHRINKING or time.monotonic() > first + SHRINKING_SECONDS:
                raise Enough
        watch(str(case))
        problem = trouble(task, submission, case, seed_of_cases)
        if problem is not None:
            first = first or time.monotonic()
            found[:] = [f"{case}: {problem}"]
            raise Enough if isinstance(submission, Given) and submission._ended() else Broken

    try:
        with seed_alone():
            law()
    except Flaky:
        return found[0] + FLAKY
    except (Broken, Enough):
        return found[0]
    return None


def drawing(examples: int, shrink: bool = False) -> settings:
    """How Hypothesis draws here: so many examples, none kept from earlier runs."""
    return settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=[Phase.generate, *([Phase.shrink] if shrink else [])],
        suppress_health_check=cast(list[HealthCheck], list(HealthCheck)),
        report_multiple_bugs=False,
    )


@contextmanager
def seed_alone() -> Iterator[None]:
    """Let draws depend on the seed alone: Hypothesis also tries numbers that it finds in modules, whichever
    are loaded by then, the submission's perhaps among them. (Its versions before 6.131 do not.)
    """
    if not hasattr(providers, "_get_local_constants"):
        yield
        return
    cache, constants = providers.CONSTANTS_CACHE, providers.Constants  # pyright: ignore
    with (
        patch.object(providers, "_get_local_constants", constants),
        patch.object(providers, "CONSTANTS_CACHE", type(cache)(cache.max_size)),
    ):
        yield


def draw_cases(task: Task, seed_of_cases: int, most_ranks: int, count: int) -> list[Any]:
    """At most ``count`` different cases of 2 to ``most_ranks`` ranks, or of 1 where there are no others."""
    drawn: dict[str, Any] = {}

    @seed(seed_of_cases)
    @drawing(task.examples)
    @given(task.cases)
    def collect(case: Any) -> None:
        drawn[str(case)] = case

    with seed_alone():
        collect()
    few = [case for case in drawn.values() if case.ranks <= most_ranks]
    chosen = [case for case in few if case.ranks > 1] or few
    return chosen[:: max(1, len(chosen) // count)][:count]


def trouble(task: Task, submission: Any, case: Any, turns: int) -> str | None:
    """What is wrong on this case, in the words of the rank that tells most; None where nothing is."""
    errors: dict[int, BaseException] = {}  # in the order they were raised

    def work(comm: Any) -> None:
        try:
            task.check(on_rank(submission, comm.rank), case, comm)
        except BaseException as error:  # SystemExit too: a rank that leaves is no reason for all to leave
            errors[comm.rank] = error
            raise Broken from None

    try:
        run_ranks(case.ranks, work, seed=turns)
    except Exception as error:
        telling = [item for item in errors.items() if not follows(item[1])]
        if isinstance(error, Broken):
            telling += errors.items()
        rank, told = telling[0] if telling else (None, error)
        return in_words(told, rank if case.ranks > 1 else None, getattr(submission, "__file__", None))
    return None


def follows(error: BaseException) -> bool:
    """Whether it was raised because of another rank's error, or of the deadlock, which tell more."""
    at: BaseException | None = error
    seen: list[BaseException] = []
    while at is not None and not any(at is before for before in seen):
        if isinstance(at, RankFailed | Deadlock):
            return True
        seen.append(at)
        at = at.__cause__ or at.__context__
    return False


def in_words(error: BaseException, rank: int | None = None, file: str | None = None) -> str:
    """What a rank raised, without the frames, with its last line in ``file``; a Wrong alone by its text."""
    causes = chain(error)
    wrong = next((cause for cause in causes if isinstance(cause, Wrong)), None)
    if wrong is not None:
        return shorten(str(wrong))
    cause = causes[-1]
    said = cause.msg if isinstance(cause, SyntaxError) else cause  # its text names the file, too
    text = f"{type(cause).__name__}: {said}".rstrip(": ")
    if isinstance(cause, NotImplementedError):
        text = f"not written yet ({text})"
    if isinstance(cause, SystemExit):
        text = f"the program was left with exit({cause.code!r})"
    if isinstance(cause, Deadlock):
        return shorten(str(cause))
    places = [] if rank is None else [f"rank {rank}"]
    lines = [line for error in causes if file and (line := line_in(error, file))]
    if file and lines:
        places.append(f"line {lines[-1]} of {os.path.basename(file)}")
    return shorten(f"{text} ({', '.join(places)})" if places else text)


def shorten(text: str, most: int = LONGEST) -> str:
    return text if len(text) <= most else f"{text[: most - 4]} ..."
