"""A task: what a submission has to define, the law it must keep, and the cases on which it is tried."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ..comm.protocol import Comm

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy


class Wrong(AssertionError):
    """What is wrong, in a student's words, without the case: that is put before it."""


class Case(Protocol):
    """What one try is about; its text is read by the student, as ``3 ranks, 7 samples``."""

    @property
    def ranks(self) -> int:
        """How many ranks run the check, each its own call; 1 where there is nothing to send."""
        ...


Check = Callable[[Any, Any, Comm], None]


@dataclass(frozen=True)
class Task:
    """One graded part of an assignment: all of its points, or none.

    ``check(given, case, comm)`` runs on every rank of a case; ``given`` has the submission's names. It
    raises Wrong, or AssertionError as the laws do. ``broken`` is a wrong answer that the check must
    refuse: it is tried first, so a check that lets all pass is found out. ``records`` are classes,
    ``module:name``, whose instances a submission may return.
    """

    name: str
    points: int
    title: str
    cases: SearchStrategy[Any]
    check: Check
    broken: Any
    examples: int = 40
    records: tuple[str, ...] = ()
