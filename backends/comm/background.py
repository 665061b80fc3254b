"""Communication while the rank computes: a thread of the rank that runs one job after another.

Gradients of the last layers can be summed while those of the first are still being computed. The jobs have
a communicator of their own, so what they send never mixes with what the rank sends meanwhile.
Lecture section: synchronous data parallelism (reduction of layer i during back-propagation of layer i - 1).
Lesson: 06_data_parallel.
"""

from __future__ import annotations

import math
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from .world import Deadlock, RankFailed, Wait, caller

if TYPE_CHECKING:
    from .mpi import MPIComm
    from .threads import ThreadComm

Result = TypeVar("Result")


class Job:
    """What was started, and what became of it; ``posted`` and ``done`` are times on the virtual clock."""

    def __init__(self, run: Callable[[Any], Any], what: str):
        self.run, self.what = run, what
        self.context = copy_context()  # NumPy's error settings, for one, are those of the program
        self.posted = self.done = 0.0
        self.ended = threading.Event()
        self.result: Any = None
        self.error: BaseException | None = None


class CommunicationThread(ABC):
    """What the backgrounds of all transports share; see ``protocol.Background`` for what they promise.

    ``comm`` is the jobs' communicator, ``rank`` the rank's own.
    """

    def __init__(self, comm: Any, rank: Any, name: str):
        self.comm, self.rank = comm, rank
        self.error: BaseException | None = None
        self.closed = False
        self.thread = threading.Thread(target=self.work, name=name, daemon=True)

    def start(
        self, job: Callable[[Any], Result], what: str = "communication", nbytes: int = 0
    ) -> Callable[[], Result]:
        if self.closed:
            raise RuntimeError(
                f"{self.thread.name} is closed and takes no {what}; "
                "start all jobs before close(), or open another with comm.background()"
            )
        what = f"the {what} of {nbytes} bytes"
        started = Job(job, what)
        noted = self.rank.note(f"{what} in the background")
        self.post(started)

        def finish() -> Result:
            noted()
            self.wait_for(started)
            if started.error is not None:
                raise started.error
            return started.result

        return finish

    def work(self) -> None:
        """Run the jobs until there will be no more."""
        while self.run_next():
            pass

    def run_next(self) -> bool:
        """Run one job; whether there was one. What it raised is kept for whoever waits for it."""
        job = self.next_job()
        if job is None:
            return False
        if self.error is None:
            try:
                job.result = job.context.run(job.run, self.comm)
            except BaseException as error:
                self.error = error
        job.error = self.error
        del job.run, job.context  # and with them what they hold
        self.end(job)
        return True

    @abstractmethod
    def post(self, job: Job) -> None:
        """Hand ``job`` to the thread."""

    @abstractmethod
    def next_job(self) -> Job | None:
        """Wait for a job, on the thread; None where there will be no more."""

    @abstractmethod
    def end(self, job: Job) -> None:
        """Tell the rank that ``job`` has ended."""

    @abstractmethod
    def wait_for(self, job: Job) -> None:
        """Let the rank wait until ``job`` has ended."""

    @abstractmethod
    def close(self) -> None:
        """No more jobs; see ``protocol.Background``."""


class ThreadBackground(CommunicationThread):
    """The background of a thread rank: a participant of the world, which sees where it waits, and for whom.

    On the virtual clock a job that takes c seconds ends at max(when it was posted, when the one before it
    ended) + c; the rank that waits for it goes on then, or later.
    """

    def __init__(self, comm: ThreadComm, rank: ThreadComm):
        super().__init__(comm, rank, rank.world.names[comm.me])
        self.world, self.opened = rank.world, caller()
        self.jobs: deque[Job] = deque()
        with self.world.lock:
            self.world.admit(self.thread, comm.me)
        self.thread.start()

    def work(self) -> None:
        try:
            self.world.start(self.comm.me)
            super().work()
        except (RankFailed, Deadlock):
            pass  # the rank is told so too
        finally:
            self.world.leave(self.comm.me, failed=False)

    def post(self, job: Job) -> None:
        world = self.world
        with world.lock:
            world.check(self.rank.me)
            job.posted = self.rank.now()
            self.jobs.append(job)
            world.bells[self.comm.me].notify_all()
            if world.turns is not None:
                world.block(self.rank.me, self.rank.turn())

    def next_job(self) -> Job | None:
        jobs, rank, world = self.jobs, self.rank.me, self.world
        with world.lock:
            wait = Wait(
                "for work" + (f" after {self.error!r}" if self.error is not None else ""),
                lambda: bool(jobs) or self.closed or rank not in world.running,
                [rank],
                lambda: jobs[0].posted if jobs else 0.0,
                self.opened,
                idle=True,
            )
            world.block(self.comm.me, wait)
            job = jobs.popleft() if jobs else None
        if job is not None:
            self.comm.arrived(job.posted)
        return job

    def end(self, job: Job) -> None:
        with self.world.lock:
            job.done = self.comm.now()
            job.ended.set()
            self.world.bells[self.rank.me].notify_all()

    def wait_for(self, job: Job) -> None:
        me = self.comm.me
        with self.world.lock:
            wait = Wait(f"for its background to finish {job.what}", job.ended.is_set, [me], lambda: job.done)
            self.world.block(self.rank.me, wait)
        self.rank.arrived(job.done)

    def close(self) -> None:
        with self.world.lock:
            self.closed = True
            self.world.bells[self.comm.me].notify_all()


class ProcessBackground(CommunicationThread):
    """The background of an MPI process: an ordinary thread, whose waits for MPI leave the core alone."""

    def __init__(self, comm: MPIComm, rank: MPIComm):
        super().__init__(comm, rank, f"rank {rank.me}'s background")
        self.jobs: SimpleQueue[Job | None] = SimpleQueue()
        self.thread.start()

    def post(self, job: Job) -> None:
        self.jobs.put(job)

    def next_job(self) -> Job | None:
        return self.jobs.get()

    def end(self, job: Job) -> None:
        job.ended.set()

    def wait_for(self, job: Job) -> None:
        self.comm.patience.idle_since = time.monotonic()
        self.rank.patience.wait_for_thread(job.ended.wait, f"for its background to finish {job.what}")
        self.comm.patience.idle_since = math.inf

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self.jobs.put(None)

        def ended(seconds: float) -> bool:
            self.thread.join(seconds)
            return not self.thread.is_alive()

        self.rank.patience.wait_for_thread(ended, "for its background to end")
        self.comm.close()
        self.comm.mpi.Free()
