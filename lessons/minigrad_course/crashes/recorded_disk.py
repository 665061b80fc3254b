"""A file system in memory, which knows every state that a loss of power can leave of it under POSIX.

What a program did is a list of operations. A loss of power keeps a first part of the list, and of it surely
what was synced: a file's bytes by fsync of the file, a name by fsync of the folder that it is in. Of all
other operations it keeps any subset, and of the bytes of a file any part. The model is that of Pillai et al.,
"All File Systems Are Not Created Equal", OSDI 2014.

Lecture section: parallelism at scale, what fails. Lesson: 16_failures.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from pathlib import Path
from random import Random

from backends.checkpoint.disk import Disk

ROOT = 0
MOST = 512  # subsets at one moment that are all tried; of more, each single one and a few draws

Nodes = dict[int, dict[str, int] | bytes]
"""Folders, which name nodes, and files, by number, as inodes."""


@dataclass(frozen=True)
class Names:
    """One atomic change of names: (folder, name, node or None where the name goes), for each name."""

    changes: tuple[tuple[int, str, int | None], ...]
    gone: int | None = None  # the folder that this removes


@dataclass(frozen=True)
class Data:
    """All bytes of a file."""

    node: int
    content: bytes


@dataclass(frozen=True)
class Sync:
    """fsync of a file or folder."""

    node: int


Operation = Names | Data | Sync


class RecordedDisk(Disk):
    """A disk in memory that keeps the list of its operations; threads may share it."""

    def __init__(self, nodes: Nodes | None = None, operations: Sequence[Operation] = ()):
        self.safe: Nodes = {ROOT: {}} if nodes is None else nodes
        self.operations = list(operations)
        self.nodes = replayed(self.safe, self.operations)
        self.lock = threading.RLock()

    # What a program calls

    def make_folder(self, folder: Path) -> None:
        with self.lock:
            for path in [*reversed(folder.parents), folder]:
                if not self.is_there(path):
                    self.name(path, self.new({}))
                elif isinstance(self.nodes[self.node(path)], bytes):
                    raise OSError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))

    def write(self, file: Path, content: bytes) -> None:
        self.fill(file, content)
        self.fsync(file)

    def fill(self, file: Path, content: bytes) -> None:
        """Write a file, new or not; neither its name nor its content is safe at the return."""
        with self.lock:
            if not self.is_there(file):
                self.name(file, self.new(b""))
            self.do(Data(self.node(file, bytes), content))

    def fsync(self, file: Path) -> None:
        """Return when the bytes of a file are safe, or the names in a folder."""
        with self.lock:
            self.do(Sync(self.node(file)))

    def reserve(self, file: Path) -> Callable[[], object]:
        """Nothing: its programs are threads of this process."""
        return lambda: None

    def rename(self, old: Path, new: Path) -> None:
        with self.lock:
            folders = self.node(old.parent, dict), self.node(new.parent, dict)
            node = self.node(old)
            if old in new.parents:
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), str(new))
            if self.is_there(new):
                there = self.node(new, type(self.nodes[node]))
                if there == node:
                    return
                if isinstance(self.nodes[there], dict) and self.nodes[there]:
                    raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(new))
            places = (folders[0], old.name, None), (folders[1], new.name, node)
            self.do(Names(places))

    def sync_folder(self, folder: Path) -> None:
        with self.lock:
            self.do(Sync(self.node(folder)))

    def remove(self, file: Path) -> None:
        with self.lock:
            self.node(file, bytes)
            self.name(file, None)

    def remove_folder(self, folder: Path) -> None:
        with self.lock:
            node = self.node(folder, dict)
            if self.nodes[node]:
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(folder))
            self.do(Names(((self.node(folder.parent), folder.name, None),), gone=node))

    def names(self, folder: Path) -> list[str]:
        with self.lock:
            try:
                names = self.nodes[self.node(folder, dict)]
            except (FileNotFoundError, NotADirectoryError):
                return []
            assert isinstance(names, dict)
            return sorted(names)

    def read(self, file: Path) -> bytes:
        with self.lock:
            content = self.nodes[self.node(file, bytes)]
            assert isinstance(content, bytes)
            return content

    # How it is done

    def node(self, path: Path, kind: type | None = None) -> int:
        """The node at a path; raises the OSError that a file system raises."""
        node = ROOT
        for part in path.relative_to(path.anchor).parts:
            names = self.nodes[node]
            if isinstance(names, bytes):
                raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
            if part not in names:
                raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
            node = names[part]
        if kind is not None and not isinstance(self.nodes[node], kind):
            number = errno.EISDIR if kind is bytes else errno.ENOTDIR
            raise OSError(number, os.strerror(number), str(path))
        return node

    def is_there(self, path: Path) -> bool:
        """Whether a file or folder has this path."""
        try:
            self.node(path)
        except FileNotFoundError:
            return False
        return True

    def new(self, node: dict[str, int] | bytes) -> int:
        """A node without a name; also in the safe nodes, where nothing leads to it."""
        number = max(self.nodes) + 1
        self.nodes[number] = node
        self.safe[number] = node.copy() if isinstance(node, dict) else node
        return number

    def name(self, path: Path, node: int | None) -> None:
        """Give a node this path; None removes the path."""
        self.do(Names(((self.node(path.parent, dict), path.name, node),)))

    def do(self, operation: Operation) -> None:
        """Perform an operation, and note it."""
        self.operations.append(operation)
        perform(self.nodes, operation)

    def damage(self, file: Path, content: bytes) -> None:
        """Another content in the file's place, which no operation wrote."""
        self.nodes[self.node(file, bytes)] = content

    def damaged(self, changes: Mapping[Path, bytes | None] | None = None) -> RecordedDisk:
        """A copy of what is there now, with another content of some files; with None they are not there."""
        copy = RecordedDisk(copied(self.nodes))
        for file, content in (changes or {}).items():
            if content is None:
                copy.remove(file)
            else:
                copy.fill(file, content)
        return copy

    def files(self) -> dict[Path, bytes | None]:
        """The content of each file by its path, None for a folder."""
        return {Path(path or "/"): content for path, content in tree(self.nodes)}

    # What is left of it

    def killed(self, length: int) -> RecordedDisk:
        """The disk when the process was killed after ``length`` operations; power may still fail."""
        return RecordedDisk(copied(self.safe), self.operations[:length])

    def power_losses(self, length: int | None = None, *, draws: int = 100) -> Iterator[RecordedDisk]:
        """Each state that a loss of power after ``length`` operations may leave, once each."""
        operations = self.operations[:length]
        states = set()
        for outcome in outcomes(operations, draws):
            nodes = replayed(self.safe, outcome)
            state = frozenset(tree(nodes))
            if state not in states:
                states.add(state)
                yield RecordedDisk(nodes)


def perform(nodes: Nodes, operation: Operation) -> None:
    """Change the nodes as the operation does."""
    if isinstance(operation, Names):
        for folder, name, node in operation.changes:
            names = nodes[folder]
            assert isinstance(names, dict)
            if node is None:
                names.pop(name, None)
            else:
                names[name] = node
    elif isinstance(operation, Data):
        nodes[operation.node] = operation.content


def replayed(nodes: Nodes, operations: Sequence[Operation]) -> Nodes:
    """A copy of the nodes after the operations."""
    nodes = copied(nodes)
    for operation in operations:
        perform(nodes, operation)
    return nodes


def copied(nodes: Nodes) -> Nodes:
    """A copy of the nodes, so that a change of a folder here is none there."""
    return {number: node.copy() if isinstance(node, dict) else node for number, node in nodes.items()}


def tree(nodes: Nodes, node: int = ROOT, path: str = "") -> Iterator[tuple[str, bytes | None]]:
    """The path of each file with its content, and of each folder with None, below ``node``."""
    content = nodes[node]
    if isinstance(content, bytes):
        yield path, content
        return
    yield path, None
    for name, inside in content.items():
        yield from tree(nodes, inside, f"{path}/{name}")


def outcomes(operations: list[Operation], draws: int) -> Iterator[list[Operation]]:
    """The operations that a loss of power keeps, in each way that it may."""
    options = [after_power_loss(operations, place) for place in range(len(operations))]
    unsafe = [place for place, ways in enumerate(options) if len(ways) > 1]
    counts = [range(len(options[place])) for place in unsafe]
    if prod(map(len, counts)) <= MOST:
        ways = list(product(*counts))
    else:
        ways = [tuple(0 for _ in unsafe), tuple(1 for _ in unsafe)]
        for number, count in enumerate(counts):
            for way in count[1:]:
                ways.append(tuple(way if i == number else 0 for i in range(len(unsafe))))
            ways.append(tuple(0 if i == number else 1 for i in range(len(unsafe))))
        random = Random(len(operations))
        ways += [tuple(random.choice(count) for count in counts) for _ in range(draws)]
    for way in ways:
        remaining: list[Operation] = list(operations)
        for place, number in reversed(list(zip(unsafe, way, strict=True))):
            remaining[place : place + 1] = options[place][number]
        yield remaining


def after_power_loss(operations: list[Operation], place: int) -> list[list[Operation]]:
    """What may be left of one operation: the whole operation, none of it, then parts of it."""
    operation = operations[place]
    if is_safe(operations, place) or isinstance(operation, Sync):
        return [[operation]]
    if isinstance(operation, Names):
        return [[operation], []]
    content = operation.content
    half = len(content) // 2
    parts = [content[:half], content[:-1], bytes(len(content)), bytes(half) + content[half:]]
    return [[operation], [], *([Data(operation.node, part)] for part in parts)]


def is_safe(operations: list[Operation], place: int) -> bool:
    """Whether a sync has made one operation safe, or no remaining file would show it."""
    operation = operations[place]
    if isinstance(operation, Names):
        nodes = {folder for folder, _, _ in operation.changes}
    else:
        nodes = {operation.node}
    for later in range(place + 1, len(operations)):
        other = operations[later]
        if isinstance(other, Sync):
            nodes.discard(other.node)
        elif isinstance(other, Names) and other.gone in nodes and is_safe(operations, later):
            nodes.discard(other.gone)
    return not nodes
