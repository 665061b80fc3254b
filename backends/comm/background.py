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
from abc import abstractmethod
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from .parts import Part
from .world import Deadlock, RankFailed, Wait, caller

if TYPE_CHECKING:
    from .mpi import MPIComm
    from .patience import Patience
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


class Worker:
    """The thread: it runs jobs one after another, each with ``comm``, the jobs' own communicator.

    It does not refer to its rank's ``Background``; where that is dropped, the thread can be closed.
    """

    def __init__(self, comm: Any, name: str):
        self.comm = comm
        self.error: BaseException | None = None
        self.closed = False
        self.thread = threading.Thread(target=self.work, name=name, daemon=True)

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
    def next_job(self) -> Job | None:
        """Wait for a job; None where there will be no more."""

    @abstractmethod
    def end(self, job: Job) -> None:
        """Tell the rank that ``job`` has ended."""


class CommunicationThread(Part):
    """What the backgrounds of all transports share; see ``protocol.Background`` for what they promise.

    ``rank`` is the communicator of which this is a part. Where a rank holds neither this nor what it started,
    the thread is closed, at the latest when the rank opens the next one.
    """

    def __init__(self, worker: Worker):
        self.worker = worker

    @property
    def rank(self) -> Any:
        return self.whole

    def start(
        self, job: Callable[[Any], Result], what: str = "communication", nbytes: int = 0
    ) -> Callable[[], Result]:
        if self.worker.closed:
            raise RuntimeError(
                f"{self.worker.thread.name} is closed and takes no {what}; "
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

    @abstractmethod
    def post(self, job: Job) -> None:
        """Hand ``job`` to the thread."""

    @abstractmethod
    def wait_for(self, job: Job) -> None:
        """Let the rank wait until ``job`` has ended."""


class ThreadWorker(Worker):
    """The thread of a thread rank: a participant of the world, which sees where it waits, and for whom."""

    def __init__(self, comm: ThreadComm, owner: int):
        super().__init__(comm, comm.world.names[comm.me])
        self.world, self.owner, self.opened = comm.world, owner, caller()
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

    def next_job(self) -> Job | None:
        jobs, rank, world = self.jobs, self.owner, self.world
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
            self.world.bells[self.owner].notify_all()


class ThreadBackground(CommunicationThread):
    """The background of a thread rank.

    On the virtual clock a job that takes c seconds ends at max(when it was posted, when the one before it
    ended) + c; the rank that waits for it goes on then, or later.
    """

    worker: ThreadWorker

    def post(self, job: Job) -> None:
        worker, world = self.worker, self.worker.world
        with world.lock:
            world.check(self.rank.me)
            job.posted = self.rank.now()
            worker.jobs.append(job)
            world.bells[worker.comm.me].notify_all()
            if world.turns is not None:
                world.block(self.rank.me, self.rank.turn())

    def wait_for(self, job: Job) -> None:
        me, world = self.worker.comm.me, self.worker.world
        with world.lock:
            wait = Wait(f"for its background to finish {job.what}", job.ended.is_set, [me], lambda: job.done)
            world.block(self.rank.me, wait)
        self.rank.arrived(job.done)

    def close(self) -> None:
        with self.worker.world.lock:
            self.closed = self.worker.closed = True
            self.worker.world.bells[self.worker.comm.me].notify_all()


class ProcessWorker(Worker):
    """The thread of an MPI process, whose waits for MPI leave the core alone."""

    def __init__(self, comm: MPIComm):
        super().__init__(comm, f"rank {comm.me}'s background")
        self.jobs: SimpleQueue[Job | None] = SimpleQueue()
        self.thread.start()

    def next_job(self) -> Job | None:
        return self.jobs.get()

    def end(self, job: Job) -> None:
        job.ended.set()


class ProcessBackground(CommunicationThread):
    """The background of an MPI process."""

    worker: ProcessWorker

    def __init__(self, worker: ProcessWorker, patience: Patience):
        super().__init__(worker)
        self.patience = patience

    def post(self, job: Job) -> None:
        self.worker.jobs.put(job)

    def wait_for(self, job: Job) -> None:
        self.worker.comm.patience.idle_since = time.monotonic()
        self.patience.wait_for_thread(job.ended.wait, f"for its background to finish {job.what}")
        self.worker.comm.patience.idle_since = math.inf

    def close(self) -> None:
        worker = self.worker
        if worker.closed:
            return
        self.closed = worker.closed = True
        worker.jobs.put(None)

        def ended(seconds: float) -> bool:
            worker.thread.join(seconds)
            return not worker.thread.is_alive()

        self.patience.wait_for_thread(ended, "for its background to end")
        worker.comm.close()
