"""Laws of backends/checkpoint/stop_agreement.py, backends/launch/restarts.py, supervise.py,
backends/process/stop_request.py and stopped.py: all ranks stop after the same step, which is
saved, named, and gone on from.
"""

from __future__ import annotations

import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, suppress
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple, cast
from unittest.mock import patch

import numpy as np

from backends.checkpoint import checkpoints as checkpoints_module
from backends.checkpoint.checkpoints import REAL, Checkpoints
from backends.checkpoint.disk import Disk
from backends.checkpoint.stop_agreement import StopAgreement
from backends.checkpoint.training_checkpoints import TrainingCheckpoints
from backends.checkpoint.training_state import gather_state
from backends.comm import run_ranks
from backends.comm.communicator import Communicator
from backends.comm.mailboxes import RankFailed
from backends.launch.restarts import Restarts
from backends.launch.supervise import Ending, Job
from backends.process.stop_request import StopRequest
from backends.process.stopped import Stopped
from minigrad import optim
from minigrad.data import Batch
from minigrad.ops import cross_entropy
from minigrad.train import fit
from tests.backends.checkpoint.resume_laws import Layout
from tests.nets import Build

Requests = Mapping[int, tuple[int, int]]
"""By rank: after which step it hears a request to stop, counted from 1, and which signal that is."""

MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # where a sync costs nothing
TERM, INT = int(signal.SIGTERM), int(signal.SIGINT)


class ScriptedRequest(StopRequest):
    """A request that comes after a step, not from a signal."""

    def __init__(self, request: tuple[int, int] | None):
        super().__init__()
        self.request, self.resent = request, False

    def __enter__(self) -> ScriptedRequest:
        return self

    def after_step(self, step: int) -> None:
        if self.request is not None and step >= self.request[0]:
            self.number = self.request[1]

    def act(self, number: int) -> None:
        self.resent = True


class LateDisk(Disk):
    """A disk so slow that no write begins before somebody waits for it."""

    def start(self, job: Callable[[], None], meanwhile: Callable[[], object]) -> Callable[[], None]:
        def finish() -> None:
            Disk.start(self, job, meanwhile)()

        return finish


def ranks_stop_together(ranks: int, steps: int, requests: Requests, seed: int | None) -> None:
    """Assert that all ranks stop after one step, on one signal: at most a step after the first one heard it.

    Between steps ranks do not communicate, so they may be at different ones; ``seed`` draws their turns.
    """

    def work(comm: Communicator) -> tuple[int, int | None]:
        agreement, request = StopAgreement(comm), ScriptedRequest(requests.get(comm.rank))
        for step in range(1, steps + 1):
            request.after_step(step)
            agreed = agreement.after_step(request.number, last=step == steps)
            if agreed is not None:
                return step, agreed
        return steps, None

    ends = run_ranks(ranks, work, seed=seed)
    assert len(set(ends)) == 1, f"ranks stop after {ends}"
    (step, number), first = ends[0], min((at for at, _ in requests.values()), default=steps + 1)
    if first > steps:
        assert number is None, f"nobody asked, and all stop after step {step}"
        return
    assert number in {number for _, number in requests.values()}, f"the signal {number}, of {requests}"
    assert first <= step <= min(first + 1, steps), f"heard after step {first}, stopped after step {step}"


class Trained(NamedTuple):
    """What a training has when it ends or stops: losses, arrays, and how it stopped."""

    losses: list[float]
    arrays: dict[str, bytes]
    stopped: Stopped | None
    resent: bool


def trained(
    layout: Layout,
    build: Build,
    data: Batch,
    checkpoints_of: Callable[..., TrainingCheckpoints],
    requests: Requests,
    seed: int | None,
    disk: Disk = REAL,
) -> list[Trained]:
    """Three epochs of ``data`` in batches of 4 on each rank, which hears its request."""
    epochs, batch = 3, 4
    steps = epochs * -(-len(data) // batch)

    def work(comm: Communicator) -> Trained:
        request = ScriptedRequest(requests.get(comm.rank))
        backend, model = layout.backend(comm), build(np.random.default_rng(0)).to(dtype=np.float64)
        checkpoints = checkpoints_of(comm, steps=steps, disk=disk, request=request)
        model = backend.place(checkpoints.load_model(model))
        optimizer = optim.Adam(model.parameters(), 0.01, eps=1e-3)
        history, stopped = checkpoints.load_rest(backend, model, optimizer), None
        state: tuple[Any, ...] = ()

        def on_step(step: int, loss: float) -> None:
            nonlocal state
            request.after_step(step + 1)
            checkpoints.write()
            state = gather_state(comm, backend, model, optimizer)
            checkpoints.stop_if_agreed()

        settings: dict[str, Any] = {"epochs": epochs, "batch_size": batch, "start": history}
        try:
            with checkpoints:
                fit(model, optimizer, cross_entropy, data, backend=backend, on_step=on_step, **settings)
        except Stopped as end:
            stopped = end
        arrays = {name: a.tobytes() for name, a in (state[0] | state[2]).items()} if state else {}
        backend.close()
        return Trained(history.losses, arrays, stopped, request.resent)

    return run_ranks(layout.ranks, work, seed=seed)


def a_stopped_training_goes_on(
    layout: Layout,
    build: Build,
    samples: int,
    requests: Requests,
    every: int,
    seed: int | None = None,
    disk: Disk = REAL,
) -> None:
    """Assert that the step after which all ranks stop is the newest in the folder, and the one they name.

    The training that goes on from it has the undisturbed one's losses and arrays, bit for bit.
    """
    rng = np.random.default_rng(0)
    data = Batch(rng.normal(size=(samples, 4)), rng.integers(0, 3, samples))
    whole = trained(layout, build, data, partial(TrainingCheckpoints, None), {}, seed)
    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        folder = Path(name) / "kept"
        saving = partial(TrainingCheckpoints, folder, every=every, say=str)
        first = trained(layout, build, data, saving, requests, seed, disk)
        steps = {len(end.losses) for end in first}
        assert len(steps) == 1, f"ranks stop after {steps}"
        assert not any(end.resent for end in first), "a request was left to the signal's own handler"
        (step,) = steps
        names = sorted(path.name for path in folder.iterdir())
        assert len(names) == min(step // every + (step % every > 0), 2), f"{names} after step {step}"
        saved = f"step {step} is saved in {folder / f'step-{step:08}'}"
        for rank, end in enumerate(first):
            assert end.stopped is not None, f"rank {rank} did not stop"
            assert end.stopped.what == saved, f"rank {rank} says: {end.stopped.what}; wanted: {saved}"
            assert end.stopped.code == 128 + end.stopped.number
        assert names[-1] == f"step-{step:08}", f"{names} after step {step}"
        rest = trained(layout, build, data, saving, {}, seed)
    for rank, (a, b) in enumerate(zip(whole, rest, strict=True)):
        since = 0 if rank == 0 else step  # a checkpoint holds the losses that rank 0 has measured
        assert a.losses[since:] == b.losses[since:], f"rank {rank}: losses differ"
        assert step == len(whole[0].losses) or a.arrays == b.arrays, f"rank {rank}: arrays differ"


def rank_0_does_not_wait_for_a_failed_rank(folder: Path) -> None:
    """Assert that rank 0, whose writer waits for rank 1's file, hears that rank 1 has failed."""
    heard: list[BaseException] = []
    writers: list[threading.Thread] = []

    def work(comm: Communicator) -> None:
        files = Checkpoints(folder, comm)
        if comm.rank == 1:
            raise ZeroDivisionError("rank 1 fails between two saves")
        files.write(1, {"x": np.zeros(3)}, {})
        try:
            files.wait()
        except Exception as error:
            heard.append(error)
            writers.extend(thread for thread in threading.enumerate() if thread.name == "checkpoint")
            files.abandon()

    with suppress(ZeroDivisionError), patch.object(checkpoints_module, "TIMEOUT", 2.0):
        run_ranks(2, work)
    assert isinstance(heard[0], RankFailed), f"rank 0 heard: {heard}"
    (writer,) = writers
    writer.join()
    assert not list(folder.glob("step-*"))


class Note(NamedTuple):
    """A file in a job's folder."""

    name: str
    text: str = ""


def only_a_crash_starts_a_job_again(folder: Path, program: str = "mpiexec") -> None:
    """Assert of which ends a job says that one of its processes died before its program ended."""
    pids = [Note("pid.0", "1"), Note("pid.1", "2")]
    sigkill, sigterm = 128 + signal.SIGKILL, 128 + signal.SIGTERM
    cases = [
        (0, pids, False, "the training is done"),
        (sigkill, pids, True, "a rank is killed"),
        (sigkill, [], True, "a rank is killed while Python loads"),
        (128 + signal.SIGSEGV, pids, True, "a rank reads memory that is not its own"),
        (14, pids, True, "MPI aborts"),
        (sigkill, [*pids, Note("end.0", str(sigterm))], True, "Open MPI's mpiexec ends rank 0 after rank 1"),
        (1, [], False, "mpiexec cannot start"),
        (1, [*pids, Note("end.0", "1")], False, "rank 0 refuses a setting, or the loss is not finite"),
        (1, [*pids, Note("end.0", "1"), Note("lost.0")], True, "rank 0 lost another rank"),
        (sigterm, [*pids, Note("end.1", str(sigterm))], False, "somebody ended rank 1"),
        (sigterm, [], False, "somebody ended mpiexec"),
    ]
    for number, (status, notes, crashed, what) in enumerate(cases):
        job_folder = folder / str(number)
        job_folder.mkdir()
        for name, text in notes:
            (job_folder / name).write_text(text, encoding="utf-8")
        job = Job(program, job_folder, process=cast(Any, None))
        assert job.crashed(status) is crashed, f"{what}: crashed is {not crashed}"


def the_rank_that_was_killed_is_named(folder: Path) -> None:
    """Open MPI's mpiexec ends by the first signal, and the ranks that it then ended have noted a SIGTERM."""
    sigkill, sigterm, sigint = 128 + signal.SIGKILL, 128 + signal.SIGTERM, 128 + signal.SIGINT
    pids = [Note(f"pid.{rank}", "1") for rank in range(3)]
    cases = [
        (sigkill, {0: sigterm, 2: sigterm}, sigkill, "rank 1 was ended by SIGKILL"),
        (sigkill, {0: sigterm}, sigkill, "a rank was ended by SIGKILL"),
        (sigterm, {1: sigterm}, sigterm, "rank 1 was ended by SIGTERM"),
        (sigkill, {1: sigint}, sigint, "rank 1 was ended by SIGINT"),
        (143, {2: 1}, 1, ""),
    ]
    for number, (by_mpiexec, ends, status, reason) in enumerate(cases):
        job_folder = folder / str(number)
        job_folder.mkdir()
        for name, text in [*pids, *(Note(f"end.{rank}", str(end)) for rank, end in ends.items())]:
            (job_folder / name).write_text(text, encoding="utf-8")
        job = Job("mpiexec", job_folder, process=cast(Any, None))
        assert job.status(by_mpiexec) == status, f"case {number}: another status than {status}"
        assert job.reason.startswith(reason) and bool(job.reason) == bool(reason), f"says {job.reason}"


def a_crashed_training_starts_again(folder: Path, endings: Sequence[bool], limit: int) -> None:
    """Assert how often, and with which arguments, a training starts of which some starts crash.

    Each start but the first goes on from what the one before has written: nothing the first time.
    """
    checkpoints, starts = folder / "kept", list[list[str]]()
    argv = ["minigrad", "train", "--resume", "old", "--checkpoint", str(checkpoints)]

    def start(arguments: list[str]) -> Ending:
        number = len(starts)
        starts.append(arguments)
        if number:
            (checkpoints / f"step-{number:08}").mkdir(parents=True)
        crashed = number < len(endings) and endings[number]
        return Ending(137 if crashed else 0, "", "nothing was kept", crashed, "")

    with patch.object(sys, "argv", argv), redirect_stderr(StringIO()) as said:
        status = Restarts(limit, checkpoints).run(start)
    crashes = next((i for i, crashed in enumerate(endings) if not crashed), len(endings))
    expected = min(crashes, limit) + 1
    assert len(starts) == expected, f"{len(starts)} starts, wanted {expected}"
    assert status == (137 if crashes > limit else 0), f"exit status {status}"
    for number, arguments in enumerate(starts):
        as_given = (
            argv[1:]
            if number < 2
            else ["train", "--checkpoint", str(checkpoints), "--resume", str(checkpoints)]
        )
        assert arguments == as_given, f"start {number}: {arguments}"
    lines = said.getvalue().splitlines()
    ways = ["from the beginning", *(f"from step {step}" for step in range(1, limit))]
    assert [line.rpartition("; ")[2] for line in lines] == [
        f"restart {i + 1} of {limit}, {ways[i]}" for i in range(expected - 1)
    ], said.getvalue()
