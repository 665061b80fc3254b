"""A folder of checkpoints, one for each step that was saved; each is there as a whole or not at all.

Lecture section: parallelism at scale, what fails. Lesson: 16_failures.

    folder/step-00000120/manifest.json         names, sizes and checksums of all below, written last
                         rank-0.safetensors    some arrays of the serial run
                         rank-1.safetensors    the others

A generation is written under another name, and renamed when all its bytes are safe. So a loss of power leaves
the generation before, or both.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from minigrad.settings_repr import settings_repr

from ..comm import Communicator, broadcast
from ..comm.allgather_json import allgather_json
from ..comm.communicator import wait_limit
from .disk import REAL, Disk

Arrays = dict[str, np.ndarray]
Place = tuple[int, int]
"""The step of a generation, and how often that step was written before: (120, 1)."""

NAME = re.compile(r"step-[0-9]+(\.[0-9]+)?")  # of a generation's folder
FORMAT = 2
MANIFEST, LOCK = "manifest.json", ".lock"
TIMEOUT = 60.0  # seconds in which all ranks must have written their files, at the most
NO_SPACE = b'{"problem": "No space left on device"}'  # what a rank says in a description without a byte
PAUSES = 0.002, 1.0  # seconds between two looks for the file of another rank, the first and the longest


class Damaged(ValueError):
    """A generation that is not whole; the message says what is wrong with it."""


@dataclass(frozen=True)
class Generation:
    """One checkpoint that was found whole: its folder, and what its manifest says."""

    folder: Path
    manifest: dict[str, Any]
    disk: Disk = REAL

    @property
    def step(self) -> int:
        """The number of steps that the training had taken."""
        return self.manifest["step"]

    @property
    def place(self) -> Place:
        """The place among the other generations, whatever the folder is called."""
        named = numbers_in(self.folder.name) if NAME.fullmatch(self.folder.name) else (self.step, 0)
        number = named[1] if named[0] == self.step else 0  # an earlier version wrote it into the name alone
        return self.step, self.manifest.get("number", number)

    @property
    def facts(self) -> dict[str, Any]:
        """What the training noted, besides its arrays."""
        return self.manifest["facts"]

    def arrays(self) -> Arrays:
        """All arrays by name; raises Damaged where a file is not what the manifest says."""
        arrays: Arrays = {}
        for name, described in self.manifest["files"].items():
            content = read(self.disk, self.folder / name)
            if len(content) != described["bytes"] or crc32(content) != described["crc32"]:
                raise Damaged(f"{self.folder / name} is not what was written: its checksum differs")
            try:
                arrays |= load(content)
            except (SafetensorError, KeyError) as error:  # KeyError: a dtype that NumPy has not
                raise Damaged(f"{self.folder / name} holds no arrays for NumPy: {error}") from None
        return arrays


class Checkpoints:
    """The generations in ``folder``, which all ranks of ``comm`` must share; the newest ``keep`` are kept.

    ``write``, ``newest`` and ``close`` are collective. ``write`` returns as soon as this rank's arrays are
    copied; a thread writes them, and rank 0's commits the generation once the files of all ranks are there,
    which must be within 60 seconds. Raises OSError where the folder cannot be written, or another process
    writes into it; until ``close``, or the end of this one, no other process can.
    """

    __repr__ = settings_repr

    def __init__(self, folder: Path | str, comm: Communicator, *, keep: int = 2, disk: Disk = REAL):
        if keep < 1:
            raise ValueError(f"at least 1 generation must be kept, got {keep}")
        folder = Path(folder)
        self.folder, self.comm, self.keep, self.disk = folder, comm, keep, disk
        self.leftovers: list[str] = []  # what other runs had not finished when this one began, or this one
        self.release: Callable[[], object] = lambda: None
        if comm.rank == 0:
            try:
                disk.make_folder(folder)
                for parent in folder.parents:  # any of them may be new
                    disk.sync_folder(parent)
                self.release = disk.reserve(folder / LOCK)
                self.leftovers = [name for name in disk.names(folder) if name.startswith(".step-")]
            except BlockingIOError as error:
                raise OSError(
                    f"{error.strerror} writes its checkpoints into {folder}; wait for its end, or name "
                    "another folder"
                ) from None
            except OSError as error:
                raise OSError(f"cannot write into {folder}: {error.strerror or error}") from error
        token = np.array([disk.random_bits(62)])
        self.token = f"{int((token if comm.size == 1 else broadcast(comm, token))[0]):016x}"
        self.finish: Callable[[], None] | None = None  # waits for the thread
        self.error: Exception | None = None
        self.committed = ""  # the name of the newest generation of this run; known on rank 0
        self.abandoned = threading.Event()

    # Writing

    def write(self, step: int, arrays: Arrays, facts: dict[str, Any], own: Arrays | None = None) -> None:
        """Begin to write a generation: ``arrays``, the same on all ranks, each rank's ``facts`` and ``own``.

        Each rank writes its share of the arrays, and its own, whose names no other rank has. Raises the
        error of the generation before, as ``wait``.
        """
        self.wait()
        mine = {name: arrays[name] for name in shared_out(arrays, self.comm.size)[self.comm.rank]}
        mine |= own or {}
        content = save({name: np.asarray(array, order="C") for name, array in mine.items()})
        described = {
            "bytes": len(content),
            "crc32": crc32(content),
            "arrays": {
                name: {"shape": list(x.shape), "dtype": x.dtype.name, "crc32": crc32(x.tobytes())}
                for name, x in mine.items()
            },
            "facts": facts,
        }
        job = partial(self.write_part, step, content, json.dumps(described).encode())
        self.finish = self.disk.start(job, self.comm.progress)

    def wait(self) -> None:
        """Return when the last generation is written; raises its error, and RankFailed as ``progress``.

        It is an OSError where the generation could not be written, or an older one not be removed.
        """
        if self.finish is not None:
            self.finish()
            self.finish = None
        if self.error is not None:
            error, self.error = self.error, None
            raise error

    def close(self) -> None:
        """Return when all ranks have written; remove what they could not finish. Raises errors as ``wait``.

        Other processes can then write into the folder.
        """
        problem = None
        try:
            self.wait()
        except OSError as error:
            problem = error
        if self.comm.size > 1:
            allgather_json(self.comm, None)
        with suppress(OSError):
            self.remove_own_leftovers()
        self.release()
        if problem is not None:
            raise problem

    def abandon(self) -> None:
        """End the wait for other ranks' files: the training has failed, and they may never come."""
        self.abandoned.set()
        self.release()

    def write_part(self, step: int, content: bytes, described: bytes) -> None:
        """Write this rank's file and what is in it; rank 0 then commits. Keeps an error for ``wait``."""
        part = self.folder / f".step-{step:08}.{self.token}.part"
        disk, rank = self.disk, self.comm.rank
        try:
            disk.make_folder(part)
            disk.write(part / f"rank-{rank}.safetensors", content)
            if rank > 0:
                self.write_description(part, described)
            else:
                others = [self.description(part, rank) for rank in range(1, self.comm.size)]
                self.committed = self.commit(step, part, [json.loads(described), *others])
                self.prune(self.committed)
        except OSError as error:
            problem = error.strerror or str(error)
            self.error = OSError(
                f"the checkpoint of step {step} cannot be written to {self.folder}: {problem}"
            )
            with suppress(OSError):  # as on a disk that is still full
                self.give_up(part, problem)
        except Exception as error:  # of which nobody would hear on this thread
            self.error = error

    def write_description(self, part: Path, described: bytes) -> None:
        """Tell rank 0 what this rank has written."""
        unnamed = part / f".rank-{self.comm.rank}.json"
        self.disk.write(unnamed, described)
        self.disk.rename(unnamed, part / f"rank-{self.comm.rank}.json")  # so that rank 0 reads no half of it

    def give_up(self, part: Path, problem: str) -> None:
        """Tell rank 0 why this rank has not written its file; rank 0 itself frees the space of the part."""
        if self.comm.rank > 0:
            with suppress(OSError):  # its bytes are in the way of the description
                self.disk.remove(part / f"rank-{self.comm.rank}.safetensors")
            try:
                self.write_description(part, json.dumps({"problem": problem}).encode())
            except OSError:  # the other ranks' files fill the disk
                self.disk.write(part / f"rank-{self.comm.rank}.json", b"")  # which takes no space
        else:
            self.leftovers.append(part.name)  # a slower rank may write into it later
            self.remove_own_leftovers()

    def description(self, part: Path, rank: int) -> dict[str, Any]:
        """What a rank says about its file; OSError, naming the rank, unless it has written it in time."""
        # The other ranks may wait in the next message meanwhile, and not for longer than their limit.
        limit = min(TIMEOUT, wait_limit() / 2)
        end, file = self.disk.now() + limit, part / f"rank-{rank}.json"
        pause, longest = PAUSES
        while True:
            try:
                described = json.loads(self.disk.read(file) or NO_SPACE)
                if "problem" in described:
                    raise OSError(f"rank {rank} cannot write its part: {described['problem']}")
                return described
            except FileNotFoundError:
                if self.disk.now() > end:
                    raise OSError(
                        f"rank {rank} has not written its part within {limit:g} s; the folder must be one "
                        "that all ranks share"
                    ) from None
            except ValueError as error:
                raise OSError(f"{file} is not what rank {rank} wrote: {error}") from None
            if self.abandoned.is_set():
                raise OSError(f"the training failed before rank {rank} had written its part")
            self.disk.sleep(pause)
            pause = min(1.5 * pause, longest)

    def commit(self, step: int, part: Path, ranks: list[dict[str, Any]]) -> str:
        """Write the manifest, and give the generation its name, which is returned, when all in it is safe."""
        disk = self.disk
        facts = [described.pop("facts") for described in ranks]
        places = [place_of(disk, self.folder / name) for name in generation_names(disk, self.folder)]
        body = {
            "format": FORMAT,
            "step": step,
            "number": max((place[1] + 1 for place in places if place[0] == step), default=0),
            "facts": facts[0] | {"of each rank": [own.get("own") for own in facts]},
            "files": {f"rank-{rank}.safetensors": described for rank, described in enumerate(ranks)},
        }
        for rank in range(1, len(ranks)):
            disk.remove(part / f"rank-{rank}.json")
        disk.write(part / MANIFEST, sealed(body))
        if not {MANIFEST, *body["files"]} <= set(disk.names(part)):
            raise OSError("another run has removed a part of it; each run needs a folder of its own")
        disk.sync_folder(part)
        taken, name, number = set(disk.names(self.folder)), f"step-{step:08}", 0
        while name in taken:  # a training that went on from an older generation comes here again
            number += 1
            name = f"step-{step:08}.{number}"
        disk.rename(part, self.folder / name)
        disk.sync_folder(self.folder)
        return name

    def prune(self, newest: str) -> None:
        """Remove all but the generations of ``keep`` steps up to ``newest``, and what was never finished.

        That is what runs before have left, and what this run could not write. Generations beyond the newest
        do not count, nor those whose step was written again: the training, which went on from an older one,
        did not find them whole. Keeps an OSError for ``wait``.
        """
        names = generation_names(self.disk, self.folder)
        places = {name: place_of(self.disk, self.folder / name) for name in names}
        last_place = place_of(self.disk, self.folder / newest)  # which another run may have removed meanwhile
        names = [name for name in names if places[name] <= last_place]
        last = {places[name][0]: name for name in reversed(names)}  # of each step, the newest step last
        remaining = list(last.values())[-self.keep :]
        try:
            for name in [*self.leftovers, *names]:
                if name not in remaining:
                    self.remove(self.folder / name)
        except OSError as error:  # the newest one is written all the same
            words = f"an older checkpoint cannot be removed from {self.folder}: {error.strerror or error}"
            self.error = OSError(words)
        self.leftovers = []

    def remove_own_leftovers(self) -> None:
        """Remove what ranks of this run have left of generations that could not be written."""
        for name in self.leftovers:
            if self.token in name:
                self.remove(self.folder / name)

    def remove(self, folder: Path) -> None:
        """Remove a folder atomically: readers see all of it or nothing."""
        nameless = self.folder / f".step-{self.disk.random_bits(62):016x}.removed"
        try:
            self.disk.rename(folder, nameless)
        except FileNotFoundError:  # another run has removed it, or has given it its name
            return
        self.disk.sync_folder(self.folder)  # or a loss of power could leave the name, and not the files
        for name in self.disk.names(nameless):
            self.disk.remove(nameless / name)
        self.disk.remove_folder(nameless)

    # Reading

    def newest(self) -> tuple[Generation | None, Arrays, list[str]]:
        """The ``newest_generation`` of this folder."""
        return newest_generation(self.folder, self.comm, self.disk)


def newest_generation(
    folder: Path, comm: Communicator, disk: Disk = REAL
) -> tuple[Generation | None, Arrays, list[str]]:
    """The newest generation that every rank reads whole, its arrays, and why newer ones were skipped.

    All ranks call, and nothing is written.
    """
    names = generation_names(disk, folder) if comm.rank == 0 else []
    text = np.frombuffer(json.dumps(names).encode(), np.uint8)
    names = json.loads(bytes(text if comm.size == 1 else broadcast(comm, text)))
    skipped: list[str] = []
    for name in names:
        generation, arrays, problem = None, {}, ""
        try:
            generation = read_generation(folder / name, disk)
            arrays = generation.arrays()
        except Damaged as error:
            problem = str(error)
        problems = [words for words in allgather_json(comm, problem) if words]
        if not problems:
            return generation, arrays, skipped
        skipped.append(problems[0])
    return None, {}, skipped


def read_generation(folder: Path, disk: Disk = REAL) -> Generation:
    """The generation in a folder, of which only the manifest is read; raises Damaged."""
    text = read(disk, folder / MANIFEST)
    try:
        body = json.loads(text)
        whole = isinstance(body, dict) and sealed(unsealed(body)) == text
    except (ValueError, RecursionError):
        raise Damaged(f"{folder / MANIFEST} is not what was written: it is no JSON object") from None
    if not whole:
        raise Damaged(f"{folder / MANIFEST} is not what was written: its checksum differs")
    if body.get("format") != FORMAT:
        raise Damaged(f"{folder} has format {body.get('format')}, and this version reads {FORMAT}")
    if not is_manifest(body):
        raise Damaged(f"{folder / MANIFEST} is no manifest: it needs a step, facts, and files by name")
    return Generation(folder, unsealed(body), disk)


def read(disk: Disk, file: Path) -> bytes:
    """All bytes of a file; raises Damaged where it cannot be read."""
    try:
        return disk.read(file)
    except OSError as error:
        raise Damaged(f"{file} cannot be read: {error.strerror or error}") from None


def sealed(body: dict[str, Any]) -> bytes:
    """A manifest with its checksum; the same text for the same content."""
    text = json.dumps(body, sort_keys=True)
    return json.dumps({**body, "checksum": crc32(text.encode())}, sort_keys=True, indent=1).encode()


def unsealed(body: dict[str, Any]) -> dict[str, Any]:
    """A manifest without its checksum."""
    return {name: value for name, value in body.items() if name != "checksum"}


def is_manifest(body: dict[str, Any]) -> bool:
    """Whether the content is of the shape that ``commit`` writes, and names no file of another folder."""
    files = body.get("files")
    return (
        isinstance(body.get("step"), int)
        and isinstance(body.get("number", 0), int)
        and isinstance(body.get("facts"), dict)
        and isinstance(files, dict)
        and all(re.fullmatch(r"rank-[0-9]+\.safetensors", name) for name in files)
        and all(isinstance(file, dict) and {"bytes", "crc32"} <= file.keys() for file in files.values())
        and all(isinstance(file.get("arrays"), dict) for file in files.values())
        and all(
            isinstance(array, dict) and "dtype" in array and isinstance(array.get("shape"), list)
            for file in files.values()
            for array in file["arrays"].values()
        )
    )


def generation_names(disk: Disk, folder: Path) -> list[str]:
    """The folders that are called as generations are, the newest first, by the places in their manifests."""
    names = [name for name in disk.names(folder) if NAME.fullmatch(name)]
    return sorted(names, key=lambda name: (place_of(disk, folder / name), name), reverse=True)


def place_of(disk: Disk, folder: Path) -> Place:
    """The place of the generation in a folder; by its name, where the manifest cannot be read."""
    try:
        return read_generation(folder, disk).place
    except Damaged:
        return numbers_in(folder.name)


def numbers_in(name: str) -> Place:
    """What the name of a generation says of its place: (120, 1) of "step-00000120.1"."""
    step, _, number = name.removeprefix("step-").partition(".")
    return int(step), int(number or 0)


def shared_out(arrays: Arrays, parts: int) -> list[list[str]]:
    """The names in ``parts`` lists of about as many bytes, the same on all ranks."""
    lists: list[list[str]] = [[] for _ in range(parts)]
    sizes = [0] * parts
    for name in sorted(arrays, key=lambda name: (-arrays[name].nbytes, name)):
        smallest = sizes.index(min(sizes))
        lists[smallest].append(name)
        sizes[smallest] += arrays[name].nbytes
    return lists


def newest_step(folder: Path, disk: Disk = REAL) -> tuple[str, int] | None:
    """Name and step of the newest generation in a folder, by its manifest; None where there is none."""
    names = generation_names(disk, folder)
    return (names[0], place_of(disk, folder / names[0])[0]) if names else None


def generations(folder: Path, disk: Disk = REAL) -> Iterator[Generation | Damaged]:
    """Each generation in a folder, the newest first, or what is wrong with it; all files are read."""
    return (whole_generation(folder / name, disk) for name in generation_names(disk, folder))


def whole_generation(folder: Path, disk: Disk = REAL) -> Generation | Damaged:
    """The generation in a folder, all of whose files are read, or what is wrong with it."""
    try:
        generation = read_generation(folder, disk)
        generation.arrays()
    except Damaged as error:
        return error
    return generation
