"""Laws of backends/checkpoint/checkpoints.py and disk.py: what checkpoints promise when the power fails, a
process is killed, or two runs share a folder.

Each law has the file system in memory record a program, and reads what is left of it at every moment.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
from hypothesis import settings
from minigrad_course.crashes.crash_states import torn_writes
from minigrad_course.crashes.recorded_disk import RecordedDisk

from backends.checkpoint import checkpoints
from backends.checkpoint.checkpoints import Checkpoints, generations, newest_generation
from backends.checkpoint.disk import Disk
from backends.comm import ThreadComm, broadcast, run_ranks
from backends.comm.collectives import barrier

FOLDER = Path("/runs/night")  # two folders that are not there yet
STRIDE = 1 if settings().max_examples >= 60 else 4
"""The thorough lane has all pairs of moments, the quick one a quarter: each, with others by turns."""
STEPS = (1, 2, 3)


def arrays_of(step: int) -> dict[str, np.ndarray]:
    """Arrays of several dtypes and shapes, all values and one shape other for each step."""
    return {
        "weight": np.arange(6, dtype=np.float32).reshape(2, 3) + 10 * step,
        "bias": np.full(step, -step, np.float64),
        "count": np.array(step, np.int64),
        "nothing": np.zeros((0, 2), np.float32),
    }


def facts_of(step: int, rank: int = 0) -> dict[str, Any]:
    return {"loss": 1 / (step + 2), "own": {"state": 2**127 + 10 * step + rank}}


def facts_of_all(step: int, ranks: int) -> dict[str, Any]:
    """What ``Generation.facts`` gives, when each rank gave its ``facts_of``."""
    return facts_of(step) | {"of each rank": [facts_of(step, rank)["own"] for rank in range(ranks)]}


def same_arrays(arrays: dict[str, np.ndarray], others: dict[str, np.ndarray]) -> bool:
    """Whether they are the same to the last bit, with their names, shapes and dtypes."""
    return arrays.keys() == others.keys() and all(
        (array.shape, array.dtype, array.tobytes())
        == (others[name].shape, others[name].dtype, others[name].tobytes())
        for name, array in arrays.items()
    )


def alone(work: Callable[[ThreadComm], Any]) -> Any:
    return run_ranks(1, work)[0]


class Program(NamedTuple):
    """The operations of a training, and after how many of them each step had been begun and written."""

    disk: RecordedDisk
    begun: dict[int, int]
    written: dict[int, int]

    def allowed(self, length: int) -> list[int | None]:
        """The steps that may be the newest after that many operations."""
        last = max((step for step in self.written if self.written[step] <= length), default=None)
        after = (last or 0) + 1
        return [last, after] if self.begun.get(after, length) < length else [last]


def training(ranks: int, keep: int, disk: RecordedDisk | None = None) -> Program:
    program = Program(RecordedDisk() if disk is None else disk, {}, {})

    def work(comm: ThreadComm) -> None:
        checkpoints = Checkpoints(FOLDER, comm, keep=keep, disk=program.disk)
        for step in STEPS:
            program.begun.setdefault(step, len(program.disk.operations))
            checkpoints.write(step, arrays_of(step), facts_of(step, comm.rank))
            checkpoints.wait()
            if comm.rank == 0:
                program.written[step] = len(program.disk.operations)

    run_ranks(ranks, work)
    return program


def newest_step(disk: Disk, ranks: int, folder: Path = FOLDER) -> int | None:
    """The step of the newest generation, which is as it was written; nothing may be skipped."""
    generation, arrays, skipped = alone(lambda comm: Checkpoints(folder, comm, disk=disk).newest())
    assert not skipped, f"a generation has its name and is not whole: {skipped}"
    if generation is None:
        return None
    step = generation.step
    assert same_arrays(arrays, arrays_of(step)), f"the arrays of step {step} are others: {arrays}"
    expected = facts_of_all(step, ranks)
    assert generation.facts == expected, f"the facts of step {step} are {generation.facts}, not {expected}"
    return step


def goes_on(disk: RecordedDisk, step: int, keep: int) -> None:
    """A training writes that step next, which is then the newest, and leaves nothing of other runs."""
    before = sum(name.startswith("step-") for name in disk.names(FOLDER))

    def work(comm: ThreadComm) -> None:
        checkpoints = Checkpoints(FOLDER, comm, keep=keep, disk=disk)
        checkpoints.write(step, arrays_of(step), facts_of(step))
        checkpoints.wait()

    alone(work)
    assert newest_step(disk, 1) == step
    names = disk.names(FOLDER)
    assert all(name.startswith("step-") for name in names), f"something was left: {names}"
    assert len(names) == min(keep, before + 1), f"{keep} generations are to be kept, got {names}"


def losses_are_survived(
    program: Program, ranks: int, keep: int, *, first: int = 0, every: int = 1, draws: int = 100
) -> int:
    """After each loss of power the newest is the last one, or the one in work; returns how many were tried.

    In one of ``every`` states a training goes on.
    """
    count = 0
    for length in range(first, len(program.disk.operations) + 1):
        allowed = program.allowed(length)
        for disk in program.disk.power_losses(length, draws=draws):
            step = newest_step(disk, ranks)
            assert step in allowed, f"after operation {length} the newest step is {step}, not in {allowed}"
            if count % every == 0:
                goes_on(disk, (step or 0) + 1, keep)
            count += 1
    return count


# Laws


def a_power_loss_leaves_whole_generations() -> None:
    """One rank, all moments, all subsets."""
    for keep in (1, 2):
        losses_are_survived(training(1, keep), 1, keep, every=10)


def a_power_loss_on_ranks_leaves_whole_generations() -> None:
    """Many subsets for two ranks, and some for three; the ranks run at once."""
    losses_are_survived(training(2, 1), 2, 1, every=50, draws=20)
    losses_are_survived(training(3, 2), 3, 2, every=50, draws=5)


def a_power_loss_after_a_kill_leaves_whole_generations() -> None:
    """A process is killed, the next one goes on with what was not synced, and then the power fails."""
    program = training(1, 1)
    for length in range(len(program.disk.operations) + 1):
        disk = program.disk.killed(length)
        step = newest_step(disk, 1)
        assert step in program.allowed(length), f"after a kill at {length} the newest step is {step}"
        following = (step or 0) + 1
        goes_on(disk, following, 1)
        for state in disk.power_losses(draws=20):
            left = newest_step(state, 1)
            assert left == following, f"step {following} was written, and the newest is {left}"


def a_kill_within_a_write_leaves_whole_generations() -> None:
    """What was done so far is there, the last file in part."""
    program = training(1, 1)
    for length in range(1, len(program.disk.operations) + 1):
        for state in torn_writes(program.disk.killed(length)):
            step = newest_step(state, 1)
            assert step in program.allowed(length), f"after a kill at {length} the newest step is {step}"


class Turns:
    """Which of two programs does its next operation: ``order`` names them, and then whoever wants to."""

    def __init__(self, order: list[int]):
        self.order, self.place = order, 0
        self.condition = threading.Condition()
        self.ended: set[int] = set()

    def wait(self, who: int) -> None:
        with self.condition:
            self.condition.wait_for(lambda: self.next() in (who, None))
            self.place += 1
            self.condition.notify_all()

    def begin(self, order: list[int]) -> None:
        with self.condition:
            self.order, self.place = order, 0
            self.condition.notify_all()

    def end(self, who: int) -> None:
        with self.condition:
            self.ended.add(who)
            self.condition.notify_all()

    def next(self) -> int | None:
        while self.place < len(self.order) and self.order[self.place] in self.ended:
            self.place += 1
        return self.order[self.place] if self.place < len(self.order) else None


class DiskInTurns(Disk):
    """One program's way to a disk that it shares with another."""

    def __init__(self, disk: RecordedDisk, turns: Turns, who: int):
        self.disk, self.turns, self.who = disk, turns, who

    def make_folder(self, folder: Path) -> None:
        self.turns.wait(self.who)
        self.disk.make_folder(folder)

    def write(self, file: Path, content: bytes) -> None:
        self.turns.wait(self.who)
        self.disk.fill(file, content[: len(content) // 2])
        self.turns.wait(self.who)
        self.disk.fill(file, content)
        self.disk.fsync(file)

    def rename(self, old: Path, new: Path) -> None:
        self.turns.wait(self.who)
        self.disk.rename(old, new)

    def sync_folder(self, folder: Path) -> None:
        self.turns.wait(self.who)
        self.disk.sync_folder(folder)

    def remove(self, file: Path) -> None:
        self.turns.wait(self.who)
        self.disk.remove(file)

    def remove_folder(self, folder: Path) -> None:
        self.turns.wait(self.who)
        self.disk.remove_folder(folder)

    def names(self, folder: Path) -> list[str]:
        self.turns.wait(self.who)
        return self.disk.names(folder)

    def read(self, file: Path) -> bytes:
        self.turns.wait(self.who)
        return self.disk.read(file)

    def reserve(self, file: Path) -> Callable[[], object]:
        return self.disk.reserve(file)


def two_runs_in_one_folder_leave_whole_generations() -> None:
    """One does some operations, the other some, and then each the rest; one may be refused, in words."""
    for first in range(3, 24):
        for second in range(1 + first % STRIDE, 40, STRIDE):
            two_runs(first, second)


def two_runs(first: int, second: int) -> None:
    disk, turns = RecordedDisk(), Turns([0] * first + [1] * second + [0] * 100)
    alone(lambda comm: write_one(comm, disk, 1))
    problems: list[OSError] = []

    def run(who: int) -> None:
        try:
            alone(lambda comm: write_one(comm, DiskInTurns(disk, turns, who), 2))
        except OSError as error:
            problems.append(error)
        finally:
            turns.end(who)

    threads = [threading.Thread(target=run, args=(who,)) for who in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    steps = whole_steps(disk)
    when = f"after {first} operations of one and {second} of the other"
    assert len(problems) < 2, f"{when} both were refused: {problems}"
    assert steps == [2], f"{when} there are the steps {steps}, refused were {problems}"
    assert newest_step(disk, 1) == 2


def write_one(comm: ThreadComm, disk: Disk, step: int) -> None:
    checkpoints = Checkpoints(FOLDER, comm, keep=1, disk=disk)
    checkpoints.write(step, arrays_of(step), facts_of(step))
    checkpoints.wait()


def what_another_run_took_is_not_committed() -> None:
    """Rank 0 did some operations, rank 1 some; then another run clears the folder, and then they go on."""
    with patch.object(checkpoints, "TIMEOUT", 0.01):
        for first in range(5):
            for second in range(7):
                a_run_is_robbed(first, second)


def a_run_is_robbed(first: int, second: int) -> None:
    disk, turns = RecordedDisk(), Turns([])
    problems: list[OSError] = []

    def rob(comm: ThreadComm) -> None:
        other = Checkpoints(FOLDER, comm, disk=DiskInTurns(disk, turns, 2))
        try:
            other.prune("step-00000000")
        finally:
            turns.end(2)

    def work(comm: ThreadComm) -> None:
        mine = Checkpoints(FOLDER, comm, disk=DiskInTurns(disk, turns, comm.rank))
        if comm.rank == 0:
            turns.begin([0] * first + [1] * second + [2] * 20 + [1] * 20)
            robber.start()
        broadcast(comm, np.zeros(1))
        try:
            mine.write(1, arrays_of(1), facts_of(1, comm.rank))
            mine.wait()
        except OSError as error:
            problems.append(error)
        finally:
            turns.end(comm.rank)

    robber = threading.Thread(target=alone, args=(rob,))
    run_ranks(2, work)
    robber.join()
    steps = whole_steps(disk)
    assert steps == ([] if problems else [1]), f"there are the steps {steps}, refused were {problems}"


def no_rank_reads_half_of_a_description() -> None:
    """Rank 0 looks for what rank 1 says of its file after each of its operations."""
    for first in range(8):
        disk, turns, problems = RecordedDisk(), Turns([]), dict[int, OSError]()

        def work(comm: ThreadComm, disk=disk, turns=turns, problems=problems, first=first) -> None:
            checkpoints = Checkpoints(FOLDER, comm, disk=DiskInTurns(disk, turns, comm.rank))
            if comm.rank == 0:
                turns.begin([1] * first + [0] * 5)
            broadcast(comm, np.zeros(1))
            try:
                checkpoints.write(1, arrays_of(1), facts_of(1, comm.rank))
                checkpoints.wait()
            except OSError as error:
                problems[comm.rank] = error
            finally:
                turns.end(comm.rank)

        run_ranks(2, work)
        assert not problems, f"rank 0 looked after operation {first} of rank 1: {problems}"
        step = newest_step(disk, 2)
        assert step == 1, f"rank 0 looked after operation {first} of rank 1, and the newest step is {step}"


class FailingDisk(RecordedDisk):
    """A disk that fails once in each ``call`` about a file of that name, until it is mended.

    Its clock stands still while several ranks write; when one is left, that has waited too long at each look.
    """

    def __init__(self, call: str, name: str, error: Exception, ranks: int):
        super().__init__()
        self.call, self.name_of_file, self.error, self.mended = call, name, error, False
        self.ranks, self.begun, self.ended, self.clock = ranks, 0, 0, 0.0
        self.lock = threading.Lock()

    def start(self, job: Callable[[], None], meanwhile: Callable[[], object]) -> Callable[[], None]:
        with self.lock:
            self.begun += 1

        def counted() -> None:
            try:
                job()
            finally:
                with self.lock:
                    self.ended += 1

        return super().start(counted, meanwhile)

    def now(self) -> float:
        with self.lock:
            if self.begun % self.ranks == 0 and self.begun - self.ended == 1:
                self.clock += checkpoints.TIMEOUT + 1
            return self.clock

    def fail(self, call: str, path: Path) -> None:
        if not self.mended and call == self.call and path.match(self.name_of_file):
            raise self.error

    def write(self, file: Path, content: bytes) -> None:
        if content:
            self.fail("write", file)
        super().write(file, content)

    def remove_folder(self, folder: Path) -> None:
        self.fail("remove_folder", folder)
        super().remove_folder(folder)


def saves_on_a_failing_disk(disk: FailingDisk) -> tuple[list[str], list[str]]:
    """Three steps, of which only the last one's disk is mended: rank 0's errors, and the names in the end.

    Each error with the names that are in the folder then.
    """
    problems: list[str] = []

    def work(comm: ThreadComm) -> None:
        checkpoints = Checkpoints(FOLDER, comm, keep=1, disk=disk)
        for step in STEPS:
            disk.mended = step == STEPS[-1]
            try:
                checkpoints.write(step, arrays_of(step), facts_of(step, comm.rank))
                checkpoints.wait()
            except Exception as error:
                if comm.rank == 0:
                    problems.append(f"{error} {disk.names(FOLDER)}")
            barrier(comm)

    run_ranks(disk.ranks, work)
    return problems, disk.names(FOLDER)


def a_write_that_fails_says_why_and_leaves_nothing() -> None:
    """Writes of each rank's file and of the manifest fail; the last step is whole, nothing else is left.

    Also where a rank cannot write a byte, so that it has no words for rank 0.
    """
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    for ranks, name, why in (
        (1, "rank-0.safetensors", ""),
        (2, "rank-1.safetensors", "rank 1 cannot write its part: "),
        (2, "*rank-1.*", "rank 1 cannot write its part: "),
        (2, "manifest.json", ""),
    ):
        problems, names = saves_on_a_failing_disk(FailingDisk("write", name, full, ranks))
        assert problems == [
            f"the checkpoint of step {step} cannot be written to {FOLDER}: {why}No space left on device []"
            for step in STEPS[:-1]
        ], f"{name} could not be written: {problems}"
        assert names == ["step-00000003"], f"{name} could not be written, and at the end there are {names}"


def a_generation_that_cannot_be_removed_is_no_failed_write() -> None:
    """The newest one is whole, and the message is about the older one."""
    busy = OSError(errno.EBUSY, os.strerror(errno.EBUSY))
    problems, names = saves_on_a_failing_disk(FailingDisk("remove_folder", ".step-*.removed", busy, 1))
    (problem,) = problems
    assert problem.startswith(f"an older checkpoint cannot be removed from {FOLDER}: {busy.strerror}"), (
        problem
    )
    assert "'step-00000002'" in problem and "step-00000003" in names, f"{problem}; at the end {names}"


def no_error_of_the_writer_is_lost() -> None:
    """Nor one that is no OSError."""
    disk = FailingDisk("write", "manifest.json", MemoryError("no memory"), 1)
    problems, _ = saves_on_a_failing_disk(disk)
    assert [problem.partition(" [")[0] for problem in problems] == ["no memory"] * 2, problems


def a_folder_that_is_not_writable_is_refused() -> None:
    """When a run begins: one of another user, one on a read-only file system, and a file in its place."""
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "file"
        file.touch()
        for folder, access in ((Path(place), False), (file, True), (file / "inside", True)):
            with patch("os.access", lambda *_, access=access: access):
                try:
                    alone(lambda comm, folder=folder: Checkpoints(folder, comm))
                except OSError as error:
                    assert str(error).startswith(f"cannot write into {folder}: "), error
                else:
                    raise AssertionError(f"a run begins to write into {folder}")
                newest = alone(lambda comm, folder=folder: newest_generation(folder, comm))
                assert newest == (None, {}, []), f"from {folder} one may read: {newest}"


def a_disk_syncs_what_it_wrote() -> None:
    """The real one: a file when all its bytes are in it, and a folder."""
    synced: list[tuple[int, int]] = []

    def fsync(descriptor: int) -> None:
        status = os.fstat(descriptor)
        synced.append((status.st_ino, status.st_size))

    with tempfile.TemporaryDirectory() as place, patch("os.fsync", fsync):
        folder = Path(place) / "a" / "b"
        disk = Disk()
        disk.make_folder(folder)
        disk.write(folder / "file", b"content")
        node = (folder / "file").stat().st_ino
        assert synced == [(node, 7)], f"the file {node} of 7 bytes was written, and synced were {synced}"
        disk.sync_folder(folder)
        node = folder.stat().st_ino
        assert [number for number, _ in synced[1:]] == [node], f"folder {node} is not among {synced[1:]}"


def only_a_file_system_that_syncs_no_folder_is_excused() -> None:
    """The root of a container is such a one, far above the checkpoints; a disk that fails is not."""
    for number, is_error in ((errno.EINVAL, False), (errno.ENOTSUP, False), (errno.EIO, True)):
        with tempfile.TemporaryDirectory() as place, patch("os.fsync", side_effect=OSError(number, "")):
            try:
                Disk().sync_folder(Path(place))
            except OSError:
                assert is_error, f"{errno.errorcode[number]} is an error"
            else:
                assert not is_error, f"{errno.errorcode[number]} is no error"


LOCKS = """
import fcntl, os, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
os.write(file, b"process 7")
print("locked", flush=True)
sys.stdin.readline()
"""


def a_folder_has_one_writer() -> None:
    """While another process holds the lock no checkpoints can be opened, and while they are open, no lock."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        command = [sys.executable, "-S", "-c", LOCKS, str(folder / checkpoints.LOCK)]

        def writes(comm: ThreadComm) -> None:
            files = Checkpoints(folder, comm)
            other = subprocess.run(command, input="", capture_output=True, encoding="utf-8")
            assert other.returncode, "the folder is in use, and another process may write into it, too"
            files.close()

        alone(writes)
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
        ) as other:
            assert other.stdout is not None and other.stdout.readline() == "locked\n"
            try:
                alone(lambda comm: Checkpoints(folder, comm))
            except OSError as error:
                assert str(error).startswith("process 7 writes its checkpoints into"), error
            else:
                raise AssertionError("another process writes into the folder, and this one may, too")
            other.kill()
        alone(writes)
        assert not list(folder.iterdir()), f"left over are {list(folder.iterdir())}"


def whole_steps(disk: Disk, folder: Path = FOLDER) -> list[int]:
    """The steps of all generations, of which none may be damaged."""
    steps = []
    for generation in generations(folder, disk):
        if isinstance(generation, Exception):
            raise AssertionError(f"a generation is damaged: {generation}")
        steps.append(generation.step)
    return steps
