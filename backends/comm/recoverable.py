"""A communicator from which ranks that died can be removed, so that the others go on without them.

The three calls are those of ULFM, User-Level Failure Mitigation, which Open MPI has: a rank that learns of a
death *revokes* the communicator, so that all learn of it; all *agree* on what was completed; all *shrink* to
the ranks that are alive. Source: Bland, Bouteiller, Herault, Bosilca and Dongarra 2013.
Lecture section: what a cluster would do. Lesson: 15_scale, by ``elastic.py``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Self

from .communicator import Communicator


class CommunicationFailed(RuntimeError):
    """A call of a recoverable communicator cannot complete; it may be revoked and shrunk."""


class RankDied(CommunicationFailed):
    """A rank that this call needs has died."""


class Revoked(CommunicationFailed):
    """Some rank has revoked the communicator."""


class Recoverable(Communicator):
    """A communicator that outlives its ranks; ``Communicator.recoverable`` makes it.

    Only a call that needs a dead rank fails, so at first some ranks know of a death and others do not.
    """

    @abstractmethod
    def revoke(self) -> None:
        """Let every call of every living rank fail, but for ``agree`` and ``shrink``; may be called again."""

    @abstractmethod
    def agree(self, flag: bool) -> bool:
        """Whether all ranks are alive and pass True; the same answer on all living ranks, which all call."""

    @abstractmethod
    def shrink(self) -> Self:
        """A communicator of the living ranks, in the same order; all living ranks call.

        What was started on this one, and on groups split from it, is lost.
        """

    @abstractmethod
    def split(self, color: int, key: int | None = None) -> Self:
        """The group of ``Communicator.split``, which is recoverable, too."""

    @abstractmethod
    def wait_for_change(self, ranks: Iterable[int]) -> None:
        """Return when this communicator is revoked or one of ``ranks`` has died, however long that takes."""

    def is_failure(self, error: Exception) -> bool:
        """Whether ``error`` says that a rank has died or that the communicator is revoked."""
        return isinstance(error, CommunicationFailed)

    def completes(self, work: Callable[[], object]) -> bool:
        """Run ``work()``; whether all ranks are alive and completed theirs. All living ranks call.

        The answer is the same on all of them, and where it is False all have given up: no rank can have
        completed what another one has not. Errors other than failures of ranks are raised.
        """
        try:
            work()
        except Exception as error:
            if not self.is_failure(error):
                raise
            self.revoke()
            return self.agree(False)
        return self.agree(True)
