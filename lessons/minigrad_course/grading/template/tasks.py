"""What this assignment is held to: the cases, a check for each task, and the points."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import hypothesis.strategies as st
import numpy as np
from minigrad_course.grading import Part, Task, Wrong
from minigrad_course.grading.array_checks import check_equal, check_like, check_private, check_unchanged
from minigrad_course.grading.restricted_comm import RestrictedComm

from backends.comm import Communicator
from backends.comm.trace import Traced
from backends.words import counted


@dataclass(frozen=True)
class Case:
    """A vector on each rank. Students read the text of the case, but not its seed."""

    ranks: int
    length: int
    seed: int

    def __str__(self) -> str:
        return f"{counted(self.ranks, 'rank')}, {counted(self.length, 'element')}"

    def vector(self, rank: int) -> np.ndarray:
        """Whole numbers, whose sums are exact in any order."""
        return np.random.default_rng([self.seed, rank]).integers(-50, 50, self.length).astype(float)


# Hypothesis shrinks a failing case to the first of a list, and to the smallest number.
LENGTHS, SEEDS = st.sampled_from([3, 2, 1, 4, 7]), st.integers(0, 2**16)
ALONE = st.builds(Case, st.just(1), LENGTHS, SEEDS)
TOGETHER = st.builds(Case, st.integers(1, 4), LENGTHS, SEEDS)


def check_center(submission: Any, case: Case, comm: Communicator) -> None:
    """A task on one rank: compare with the definition, and say what is wrong in a sentence."""
    x = case.vector(0)
    before = x.copy()
    result = submission.center(x)
    check_like("the result", result, x.shape, x.dtype)
    check_private("the result", result, {"x": x})
    check_unchanged({"x": x}, [before])
    check_equal("the result", result, before - before.mean(), atol=1e-12)


def check_mean(submission: Any, case: Case, comm: Communicator) -> None:
    """A task on several ranks: each calls the submission, which can only send and receive."""
    comm.use_synchronous_sends()  # a send waits for its receiver, as MPI's does with a large message
    traced, x = Traced(comm), case.vector(comm.rank)
    result = submission.mean_over_ranks(RestrictedComm(traced), x)
    expected = np.mean([case.vector(rank) for rank in range(case.ranks)], axis=0)
    check_like(f"rank {comm.rank}'s result", result, x.shape, x.dtype)
    check_equal(f"rank {comm.rank}'s result", result, expected, atol=1e-12)
    sent, most = traced.record.ledger.sent().messages, case.ranks - 1
    if sent > most:
        raise Wrong(f"the result is right, but rank {comm.rank} sent {counted(sent, 'message')}, not {most}")


# Each task brings a wrong answer, which its check must refuse. A part has easier cases, and earns a share of
# the points.
TASKS = (
    Task("center", 40, "a vector less its mean", ALONE, check_center, SimpleNamespace(center=np.copy)),
    Task(
        "mean_over_ranks",
        60,
        "the mean over all ranks",
        TOGETHER,
        check_mean,
        SimpleNamespace(mean_over_ranks=lambda comm, x: x),
        parts=(Part("for two ranks", 0.5, lambda case: case.ranks == 2),),
    ),
)
