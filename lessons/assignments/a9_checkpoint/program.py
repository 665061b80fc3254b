"""The cases of assignment a9, and a submission's program on a recorded disk, with what a crash left of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from minigrad_course.crashes.crash_states import files_in_words, in_words
from minigrad_course.crashes.recorded_disk import RecordedDisk
from minigrad_course.grading import Wrong
from minigrad_course.grading.counterexample import is_consequence
from minigrad_course.grading.restricted_comm import RestrictedComm, RestrictedObject
from minigrad_course.grading.submission import on_rank

from backends.comm import ThreadComm, run_ranks

SHOWN = 14  # operations of a counterexample
MOST_OPERATIONS, MOST_BYTES = 1000, 2**14  # on one disk, and in one file


@dataclass(frozen=True)
class Bytes:
    """What a file is to hold, and how it changes; nothing is sent."""

    content: bytes
    kind: str
    ranks = 1

    def __str__(self) -> str:
        return f"content {self.content!r}"

    def changes(self, data: bytes) -> Iterator[tuple[str, bytes, bytes | None]]:
        """What happened to the file, its bytes, and what ``unseal`` has to give."""
        yield "the file as it was written", data, self.content
        if self.kind == "cut":
            for length in range(len(data)):
                yield f"cut to {length} bytes", data[:length], None
        elif self.kind == "flip":
            for bit in range(8 * len(data)):
                changed = bytearray(data)
                changed[bit // 8] ^= 1 << bit % 8
                yield f"one bit of byte {bit // 8} is flipped", bytes(changed), None
        else:
            for length in range(len(data) + 9):
                yield f"{length} bytes of zero", bytes(length), None


@dataclass(frozen=True)
class Run:
    """Ranks with shards of these sizes, which save so often; the crash comes within the last save.

    The check starts the ranks itself, since they share one disk.
    """

    sizes: tuple[int, ...]
    saves: int
    others: int
    seed: int
    ranks = 1

    @property
    def workers(self) -> int:
        return len(self.sizes)

    def __str__(self) -> str:
        sizes = " and ".join(map(str, self.sizes))
        shards = f"shards of {sizes} bytes"
        if self.workers == 1:
            shards = f"a shard of {counted(self.sizes[0], 'byte')}"
        return f"{counted(self.workers, 'rank')}, {shards}, {counted(self.saves, 'save')}"

    def steps(self, count: int) -> list[int]:
        """9, 10, 11, ...: as texts they are in another order."""
        return list(range(9, 9 + count))

    def shard(self, step: int, rank: int) -> bytes:
        size = self.sizes[rank]
        return bytes((16 * step + rank + i) % 256 for i in range(size and size + step % 3))

    def shards(self, step: int) -> list[bytes]:
        return [self.shard(step, rank) for rank in range(self.workers)]

    def other_run(self) -> Run:
        """The run after the crash, which may have another number of ranks."""
        return replace(self, sizes=(2, 1)[: self.others])


@dataclass(frozen=True)
class Damage(Run):
    kind: str = "flip"


class Recorded(NamedTuple):
    """A program on its disk, which began its last save after ``begun`` operations."""

    case: Run
    disk: RecordedDisk
    begun: int
    steps: Sequence[int]

    def allowed(self, length: int) -> list[int | None]:
        """The steps that may come back after so many operations; None where nothing had been saved."""
        last = self.steps[-1]
        before = self.steps[-2] if len(self.steps) > 1 else None
        return [last] if length >= len(self.disk.operations) else [before, last]

    def of_run(self, other: Run) -> Recorded:
        return self._replace(case=other)

    def files_of_a_run(self, submission: Any, other: Run) -> int:
        """How many files and folders three saves leave on an empty disk."""
        disk = RecordedDisk()
        for step in other.steps(3):
            save(submission, disk, other, step)
        return len(disk.files())

    def moment(self, what: str, length: int, within: bool = False) -> str:
        number, count = length - self.begun, len(self.disk.operations) - self.begun
        if number == 0:
            return f"{what} before the save of step {self.steps[-1]}"
        if number == count and not within:
            return f"{what} after the save of step {self.steps[-1]}"
        return f"{what} {'within' if within else 'after'} operation {number} of the save"

    def story(self, disk: RecordedDisk, problem: str) -> str:
        """The problem, the operations of the last save, and what was left."""
        words = [f"{i}. {text}" for i, text in enumerate(in_words(self.disk)[self.begun :], 1)]
        if len(words) > SHOWN:
            words[SHOWN // 2 : -SHOWN // 2] = ["..."]
        left = files_in_words(disk, self.disk) or ["no file"]
        save = f"save of step {self.steps[-1]}:"
        return "\n  ".join([problem, save, *words, "left on the disk:", *left])

    def gives(
        self, submission: Any, disk: RecordedDisk, allowed: Sequence[int | None], when: str
    ) -> int | None:
        """The step that comes back, which is one of ``allowed`` and whole; Wrong, with the story, if not."""
        try:
            return gives(submission, disk, self.case, allowed, when)
        except Wrong as error:
            raise Wrong(self.story(disk, str(error))) from None


LOADER = 64
"""The number of the process that loads, in which nothing was saved: a crash takes memory away."""


def record(submission: Any, case: Run) -> Recorded:
    """The program of all saves of a case."""
    disk, steps, begun = RecordedDisk(), case.steps(case.saves), 0
    for step in steps:
        begun = len(disk.operations)
        save(submission, disk, case, step)
    return Recorded(case, disk, begun, steps)


def save(submission: Any, disk: RecordedDisk, case: Run, step: int) -> None:
    """Every rank saves its shard; raises what the first rank raised of itself."""
    errors: list[BaseException] = []

    def work(comm: ThreadComm) -> None:
        try:
            mine = on_rank(submission, comm.rank)
            mine.save(RestrictedComm(comm), offered(disk), step, case.shard(step, comm.rank))
        except BaseException as error:
            errors.append(error)
            raise

    try:
        run_ranks(case.workers, work, seed=case.seed)
    except BaseException as error:
        raise next((e for e in errors if not is_consequence(e)), error) from None


def gives(
    submission: Any, disk: RecordedDisk, case: Run, allowed: Sequence[int | None], when: str
) -> int | None:
    try:
        result = on_rank(submission, LOADER).load(readable(disk))
    except (Wrong, NotImplementedError):
        raise
    except Exception as error:
        raise Wrong(f"{when}: load raises {type(error).__name__}: {error}") from None
    if result is None:
        if None not in allowed:
            raise Wrong(f"{when}: load gives nothing, it should give {steps_in_words(allowed)}")
        return None
    if not isinstance(result, tuple) or len(result) != 2:
        raise Wrong(f"{when}: load returned {result!r:.60}, not (step, shards) or None")
    step, shards = result
    if type(step) is not int or not isinstance(shards, list | tuple):
        raise Wrong(f"{when}: load returned ({step!r:.20}, {shards!r:.40}), not a step and a list of shards")
    if odd := [shard for shard in shards if type(shard) is not bytes]:
        raise Wrong(f"{when}: load returned a shard that is {type(odd[0]).__name__}, not bytes")
    if step not in allowed:
        raise Wrong(f"{when}: load gives step {step}, it should give {steps_in_words(allowed)}")
    if list(shards) != (shards_of_step := case.shards(step)):
        raise Wrong(f"{when}: of step {step} load gives {mixture(case, step, shards, shards_of_step)}")
    return step


def steps_in_words(allowed: Sequence[int | None]) -> str:
    return " or ".join("nothing" if step is None else f"step {step}" for step in dict.fromkeys(allowed))


def mixture(case: Run, step: int, shards: Sequence[Any], right: list[bytes]) -> str:
    """What is wrong with the shards."""
    if len(shards) != len(right):
        return f"{counted(len(shards), 'shard')}, it should be {len(right)}"
    rank = next(rank for rank, shard in enumerate(shards) if shard != right[rank])
    other = [s for s in case.steps(case.saves + 4) if shards[rank] == case.shard(s, rank)]
    if other:
        return f"a mix: the shard of rank {rank} is that of step {other[0]}"
    return f"for rank {rank} {shards[rank]!r:.60}, it should be {right[rank]!r}"


def is_new(states: set[Any], disk: RecordedDisk, allowed: Sequence[int | None]) -> bool:
    """Whether this state, with these steps allowed, was not tried yet."""
    state = frozenset(disk.files().items()), tuple(allowed)
    return not (state in states or states.add(state))


# The disk as a submission has it


def offered(disk: RecordedDisk) -> RestrictedObject:
    """All that a program may do; a folder is removed as a file is."""

    def write(path: Any, content: Any) -> None:
        if type(content) is not bytes:
            raise TypeError(f"write takes bytes, got {type(content).__name__}")
        if len(content) > MOST_BYTES or len(disk.operations) > MOST_OPERATIONS:
            raise Wrong(
                f"operation {len(disk.operations)} on the disk writes {len(content)} bytes into {path}: "
                "a save of a few bytes needs less"
            )
        disk.fill(place(path), content)

    def remove(path: Any) -> None:
        where = place(path)
        if isinstance(disk.nodes[disk.node(where)], dict):
            disk.remove_folder(where)
        else:
            disk.remove(where)

    methods = {
        "make_folder": lambda path: disk.make_folder(place(path)),
        "write": write,
        "sync": lambda path: disk.fsync(place(path)),
        "rename": lambda old, new: disk.rename(place(old), place(new)),
        "remove": remove,
        **reading(disk),
    }
    return RestrictedObject("disk", {}, methods)


def readable(disk: RecordedDisk) -> RestrictedObject:
    return RestrictedObject("disk", {}, reading(disk))


def reading(disk: RecordedDisk) -> dict[str, Any]:
    return {"names": lambda path: disk.names(place(path)), "read": lambda path: disk.read(place(path))}


def place(path: Any) -> Path:
    if not isinstance(path, str) or not path.startswith("/"):
        raise TypeError(f"a path is a text that begins with /, got {path!r:.60}")
    return Path(path)


def counted(n: int, noun: str) -> str:
    return f"{n} {noun}{'' if n == 1 else 's'}"
