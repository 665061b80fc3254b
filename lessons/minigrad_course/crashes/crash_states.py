"""Every state in which a crash can leave a recorded disk: a kill, a kill within a write, or a loss of power.

``in_words`` and ``files_in_words`` say what a program did and what was left of it, for a counterexample.

Lecture section: parallelism at scale, what fails. Lesson: 16_failures.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from .recorded_disk import Data, Names, RecordedDisk, Sync, perform


class CrashState(NamedTuple):
    """What is left of a program that had done ``length`` operations."""

    disk: RecordedDisk
    length: int
    cause: str


def crash_states(disk: RecordedDisk, first: int = 0, *, draws: int = 100) -> Iterator[CrashState]:
    """Each state after ``first`` operations or more: after a kill, and after a loss of power."""
    for length in range(first, len(disk.operations) + 1):
        for state in kills(disk, length):
            yield CrashState(state, length, "a kill")
        for state in disk.power_losses(length, draws=draws):
            yield CrashState(state, length, "a loss of power")


def kills(disk: RecordedDisk, length: int) -> Iterator[RecordedDisk]:
    """The disk when a process was killed: what it did is there, and of the last write any first part."""
    killed = disk.killed(length)
    yield killed
    yield from torn_writes(killed)


def torn_writes(disk: RecordedDisk) -> Iterator[RecordedDisk]:
    """The disk with its last operation done in part, where that is a write of some bytes."""
    last = disk.operations[-1] if disk.operations else None
    if isinstance(last, Data) and last.content:
        for length in sorted({0, 1, len(last.content) // 2, len(last.content) - 1}):
            state = disk.killed(len(disk.operations) - 1)
            state.do(Data(last.node, last.content[:length]))
            yield state


def in_words(disk: RecordedDisk) -> list[str]:
    """Each operation, such as ``rename /a.part to /a``."""
    nodes = RecordedDisk(disk.safe).nodes
    paths: dict[int, str] = {}

    def find(node: int, path: str) -> None:
        paths[node] = path or "/"
        inside = nodes[node]
        for name, child in inside.items() if isinstance(inside, dict) else ():
            find(child, f"{path}/{name}")

    find(0, "")
    words = []
    for operation in disk.operations:
        before = dict(paths)
        perform(nodes, operation)
        find(0, "")
        if isinstance(operation, Sync):
            words.append(f"sync {before.get(operation.node, 'a removed file')}")
        elif isinstance(operation, Data):
            place = before.get(operation.node, "a removed file")
            words.append(f"write {len(operation.content)} bytes into {place}")
        else:
            words.append(name_change(operation, before, nodes))
    return words


def name_change(operation: Names, paths: dict[int, str], nodes: dict[int, dict[str, int] | bytes]) -> str:
    """What a change of names is called; ``paths`` are those before it."""
    folder, name, node = operation.changes[-1]
    place = f"{paths[folder].rstrip('/')}/{name}"
    if len(operation.changes) == 2:
        source, old, _ = operation.changes[0]
        return f"rename {paths[source].rstrip('/')}/{old} to {place}"
    if node is None:
        return f"remove {place}"
    return f"{'make folder' if isinstance(nodes[node], dict) else 'make file'} {place}"


def files_in_words(disk: RecordedDisk, program: RecordedDisk) -> list[str]:
    """Each file that is left, and how much of what ``program`` wrote is in it."""
    contents = [content for content in program.files().values() if content is not None]
    contents += [operation.content for operation in program.operations if isinstance(operation, Data)]
    return [
        f"{path.as_posix()}: {remainder(content, contents)}"
        for path, content in disk.files().items()
        if content is not None and path != Path("/")
    ]


def remainder(content: bytes, contents: list[bytes]) -> str:
    """What of the ``contents`` that were written is left."""
    if content in contents:
        return f"{len(content)} bytes, as written" if content else "empty"
    whole = next((len(whole) for whole in contents if content and whole.startswith(content)), 0)
    if whole:
        return f"the first {len(content)} of {whole} bytes"
    if not content:
        return "empty"
    return f"{len(content)} bytes, {'all zero' if not any(content) else 'not as written'}"
