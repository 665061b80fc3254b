"""Communication while the rank computes: a layer's gradients are summed during the backward of those before.

Lecture section: synchronous data parallelism (reduction of layer i during back-propagation of layer i - 1).
Lesson: 06_data_parallel, by ``trace.py``.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

from .communicator import Communicator, Result
from .gpu import current_gpu
from .parts import Part


class Job:
    """A started job and its result or error; ``posted`` and ``done`` are times on the rank's clock."""

    def __init__(self, run: Callable[[Any], Any], what: str):
        self.run, self.what = run, what
        self.context = copy_context()  # a job has, for example, the program's NumPy error settings
        self.gpu = current_gpu()
        self.posted = self.done = 0.0
        self.ended = threading.Event()
        self.result: Any = None
        self.error: BaseException | None = None


class Worker(ABC):
    """A thread that runs jobs one after another, each with ``comm``, the jobs' own communicator.

    ``rank`` is the communicator that opened the background. The worker refers neither to it nor to the
    ``Background``, so the thread can be closed when they are dropped.
    """

    def __init__(self, comm: Communicator, name: str):
        self.comm = comm
        self.error: BaseException | None = None
        self.closed = False
        self.thread = threading.Thread(target=self.work, name=name, daemon=True)

    def work(self) -> None:
        """Run jobs until the background is closed; a job's exception is raised where it is finished."""
        while (job := self.next_job()) is not None:
            if self.error is None:
                try:
                    with job.gpu:
                        job.result = job.context.run(job.run, self.comm)
                except BaseException as error:
                    self.error = error
            job.error = self.error
            del job.run, job.context  # and the arrays that they refer to
            self.end(job)
            del job

    @abstractmethod
    def next_job(self) -> Job | None:
        """Wait for a job; None if the background was closed."""

    def end(self, job: Job) -> None:
        """Tell the rank that ``job`` has ended."""
        job.ended.set()

    @abstractmethod
    def post(self, job: Job, rank: Any) -> None:
        """Hand ``job`` of ``rank`` to the thread."""

    @abstractmethod
    def wait_for(self, job: Job, rank: Any) -> None:
        """Let ``rank`` wait until ``job`` has ended."""

    @abstractmethod
    def close(self) -> None:
        """End the thread after the jobs that were started; may be called again."""


class Background(Part):
    """A communication thread of a rank, whose jobs run one after another in the order they were started.

    A job gets another communicator over the same ranks, so its messages do not mix with the rank's; the
    n-th job of one rank talks to the n-th job of the others. After a job that raised, no other is run. When a
    program has dropped both this and the functions that ``start`` returned, the thread of ``worker`` is
    closed, at the latest when the rank opens the next background.
    """

    def __init__(self, worker: Worker):
        self.worker = worker

    def start(
        self, job: Callable[[Any], Result], what: str = "communication", nbytes: int = 0
    ) -> Callable[[], Result]:
        """Start ``job(comm)`` and return at once; errors and traces call it ``what`` with ``nbytes``.

        The function returned waits for the job's result, and raises what the job, or one before it,
        raised. What the job reads must not change until then.
        """
        if self.worker.closed:
            raise RuntimeError(
                f"{self.worker.thread.name} is closed and takes no {what}; "
                "start all jobs before close(), or open another with comm.background()"
            )
        what = f"the {what} of {nbytes} bytes"
        pending = Job(job, what)
        forget = self.whole.remember_pending(f"{what} in the background")
        self.worker.post(pending, self.whole)

        def finish() -> Result:
            forget()
            self.worker.wait_for(pending, self.whole)
            if pending.error is not None:
                raise pending.error
            return pending.result

        return finish

    def close(self) -> None:
        """Take no more jobs: the thread ends after those that were started. May be called again."""
        self.worker.close()
