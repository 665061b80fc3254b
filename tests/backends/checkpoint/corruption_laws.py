"""Laws of backends/checkpoint/checkpoints.py: what checkpoints promise when bytes of them change, or
were written by somebody else.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st
from minigrad_course.crashes.recorded_disk import RecordedDisk

from backends.checkpoint.checkpoints import Checkpoints, Damaged, generations, read_generation, sealed
from backends.comm import ThreadComm, run_ranks
from tests.backends.checkpoint.power_laws import FOLDER, alone, arrays_of, facts_of, facts_of_all, same_arrays

OLDER, NEWER = FOLDER / "step-00000001", FOLDER / "step-00000002"
MANIFEST = "manifest.json"


def two_generations(ranks: int) -> RecordedDisk:
    disk = RecordedDisk()

    def work(comm: ThreadComm) -> None:
        checkpoints = Checkpoints(FOLDER, comm, disk=disk)
        for step in (1, 2):
            checkpoints.write(step, arrays_of(step), facts_of(step, comm.rank))
            checkpoints.wait()

    run_ranks(ranks, work)
    return disk


def files_in(disk: RecordedDisk, folder: Path) -> list[Path]:
    return [folder / name for name in disk.names(folder)]


def gives(checkpoints: Checkpoints, step: int | None, reasons: list[Path], ranks: int, what: str) -> None:
    """The newest generation is the one of that step, whole; others were skipped for these files."""
    generation, arrays, skipped = checkpoints.newest()
    newest = None if generation is None else generation.step
    assert newest == step, f"{what}: the newest is step {newest}, not {step}; skipped: {skipped}"
    if generation is not None:
        assert same_arrays(arrays, arrays_of(generation.step)), f"{what}: wrong arrays {arrays}"
        assert generation.facts == facts_of_all(generation.step, ranks), f"{what}: {generation.facts}"
    assert len(skipped) == len(reasons), f"{what}: skipped were {skipped}"
    for reason, path in zip(sorted(skipped), sorted(reasons), strict=True):
        assert str(path) in reason and "\n" not in reason, f"{what}: the reason is {reason!r}"


# Laws


def every_flipped_bit_is_seen() -> None:
    """The thorough lane flips every bit, the quick one a bit of each byte: of the next byte the next bit."""

    def work(comm: ThreadComm) -> None:
        disk = two_generations(1)
        checkpoints = Checkpoints(FOLDER, comm, disk=disk)
        for file in files_in(disk, NEWER):
            content = disk.read(file)
            for place in range(0, 8 * len(content), 1 if settings().max_examples >= 60 else 9):
                flipped = bytearray(content)
                flipped[place // 8] ^= 1 << place % 8
                disk.damage(file, bytes(flipped))
                gives(checkpoints, 1, [file], 1, f"bit {place} of {file} is flipped")
            disk.damage(file, content)
        gives(checkpoints, 2, [], 1, "all is as it was")

    alone(work)


def a_renamed_generation_keeps_its_place() -> None:
    disk = two_generations(1)
    disk.rename(OLDER, FOLDER / "step-00000009")
    alone(lambda comm: gives(Checkpoints(FOLDER, comm, disk=disk), 2, [], 1, "step 1 is called step 9"))


def every_other_length_is_seen() -> None:
    def work(comm: ThreadComm) -> None:
        disk = two_generations(1)
        checkpoints = Checkpoints(FOLDER, comm, disk=disk)
        for file in files_in(disk, NEWER):
            content = disk.read(file)
            for other in (*(content[:length] for length in range(len(content))), content + b"\0"):
                disk.damage(file, other)
                gives(checkpoints, 1, [file], 1, f"{len(other)} of {len(content)} bytes of {file}")
            disk.damage(file, content)

    alone(work)


def files_that_are_missing_or_swapped_are_seen() -> None:
    """Two ranks save; one file is put in another's place, within a generation and from another one."""
    ranks = 2
    disk = two_generations(ranks)

    def check(changes: dict[Path, bytes | None], step: int | None, reasons: list[Path], what: str) -> None:
        changed = disk.damaged(changes)
        alone(lambda comm: gives(Checkpoints(FOLDER, comm, disk=changed), step, reasons, ranks, what))

    for file in files_in(disk, NEWER):
        check({file: None}, 1, [file], f"{file} is missing")
        twin = OLDER / file.name
        check({file: disk.read(twin)}, 1, [NEWER], f"{file} is of the generation before")
        swapped: dict[Path, bytes | None] = {file: disk.read(twin), twin: disk.read(file)}
        check(swapped, None, [NEWER, OLDER], f"{file} and {twin} are swapped")
    first, second = (NEWER / f"rank-{rank}.safetensors" for rank in range(2))
    check({first: disk.read(second), second: disk.read(first)}, 1, [first], "files of ranks are swapped")
    check(dict.fromkeys(files_in(disk, NEWER)), 1, [NEWER], "all files are missing")


def ranks_take_the_same_generation() -> None:
    """One rank alone reads bytes that changed."""
    disk = two_generations(1)
    for file in files_in(disk, NEWER):
        for rank in range(3):
            changed = disk.damaged({file: disk.read(file)[:-1]})
            run_ranks(
                3,
                lambda comm, rank=rank, changed=changed, file=file: gives(
                    Checkpoints(FOLDER, comm, disk=changed if comm.rank == rank else disk),
                    *(1, [file], 1, f"rank {rank} reads other bytes of {file}"),
                ),
            )


def a_damaged_generation_is_no_reason_to_remove_another() -> None:
    """A training goes on from the last whole one: the newest is its own, and with it others are kept."""
    for keep in (1, 2):
        for damaged in ((2,), (1, 2)):
            changed = two_generations(1).damaged(
                {FOLDER / f"step-{step:08}" / MANIFEST: b"{" for step in damaged}
            )

            def work(comm: ThreadComm, changed=changed, keep=keep, damaged=damaged) -> None:
                checkpoints = Checkpoints(FOLDER, comm, keep=keep, disk=changed)
                older = 2 - len(damaged)
                for count, step in enumerate(range(damaged[0], 5), older + 1):
                    checkpoints.write(step, arrays_of(step), facts_of(step))
                    checkpoints.wait()
                    whole = [g for g in generations(FOLDER, changed) if not isinstance(g, Damaged)]
                    steps = [generation.step for generation in whole]
                    expected = list(range(step, 0, -1))[: min(keep, count)]
                    assert steps == expected, f"step {step} was written, there are {steps}, not {expected}"
                assert len(changed.names(FOLDER)) == keep, f"there are {changed.names(FOLDER)}"

            alone(work)


def other_names_are_no_generations() -> None:
    disk = two_generations(1)
    for name in (
        "step-",
        "step-.",
        "step-.5",
        "step-1.",
        "step-²",
        "step-1.2.3",
        "step-+1",
        "step--3",
        "step-x",
    ):
        disk.make_folder(FOLDER / name)
    alone(lambda comm: gives(Checkpoints(FOLDER, comm, disk=disk), 2, [], 1, "folders of other names"))


def files_outside_the_folder_are_not_read() -> None:
    disk = two_generations(1)
    content = disk.read(OLDER / "rank-0.safetensors")
    disk.write(FOLDER / "secret", content)
    for name in (
        "../secret",
        "/runs/night/secret",
        "../step-00000001/rank-0.safetensors",
        ".",
        "..",
        "",
        "a\0b",
    ):
        body = json.loads(disk.read(NEWER / MANIFEST))
        body["files"] = {name: {"bytes": len(content), "crc32": crc32(content), "arrays": {}}}
        changed = disk.damaged({NEWER / MANIFEST: resealed(body)})
        alone(
            lambda comm, changed=changed, name=name: gives(read_by(comm, changed), 1, [NEWER], 1, repr(name))
        )


def read_by(comm: ThreadComm, disk: RecordedDisk) -> Checkpoints:
    return Checkpoints(FOLDER, comm, disk=disk)


def resealed(body: dict[str, Any]) -> bytes:
    return sealed({name: value for name, value in body.items() if name != "checksum"})


# Files that somebody else wrote

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(max_size=5), inside, max_size=3),
    max_leaves=8,
)
HUGE = st.sampled_from([10**400, -1, 2**64, 1e308, float("nan"), float("inf")])
DEEP = b"[" * 1_000_000  # more than any stack holds


@st.composite
def bodies(draw: st.DrawFn) -> dict[str, Any]:
    """A manifest with some of its values, at any depth, replaced or left out."""
    body: dict[str, Any] = {"format": 2, "step": 2, "facts": {}}
    body["files"] = {"rank-0.safetensors": {"bytes": 5, "crc32": 7, "arrays": {}, "other": 1}}
    place = body
    for key in draw(st.sampled_from([[], ["facts"], ["files"], ["files", "rank-0.safetensors"]])):
        place = place[key]
    key = draw(st.sampled_from(sorted(place) or ["new"]))
    if draw(st.booleans()):
        place.pop(key, None)
    else:
        place[key] = draw(JSON | HUGE)
    return body


def manifests() -> st.SearchStrategy[bytes]:
    words = JSON.map(lambda value: json.dumps(value).encode())
    return st.binary(max_size=30) | words | bodies().map(sealed)


SIZES = {
    "F32": 4,
    "F64": 8,
    "BF16": 2,
    "F8_E4M3": 1,
    "F4": 0.5,
    "C64": 8,
    "I64": 8,
    "BOOL": 1,
    "U16": 2,
    "X": 1,
}
ODD = st.sampled_from([[], [0], [-1], [2**63], [2**32, 2**32], [8, 0], [0, 2**64], [-1, 7], "x", None, 3])


def file_of(dtype: str) -> bytes:
    """A safetensors file of two numbers."""
    data = bytes(int(2 * SIZES[dtype]))
    header = json.dumps({"a": {"dtype": dtype, "shape": [2], "data_offsets": [0, len(data)]}}).encode()
    return struct.pack("<Q", len(header)) + header + data


@st.composite
def rank_files(draw: st.DrawFn) -> bytes:
    """A safetensors file of two numbers, most often with one thing wrong; or any bytes."""
    dtype, wrong = draw(st.sampled_from(sorted(SIZES))), draw(st.integers(0, 6))
    data = bytes(int(2 * SIZES[dtype]))
    entry: dict[str, Any] = {"dtype": dtype, "shape": [2], "data_offsets": [0, len(data)]}
    key = draw(st.sampled_from(sorted(entry)))
    if wrong == 1:
        entry[key] = draw(ODD)
    elif wrong == 2:
        del entry[key]
    elif wrong == 3:
        data = data[1:]
    header = json.dumps({draw(st.sampled_from(["a", "", "__metadata__", "\0"])): entry}).encode()
    length = len(header) if wrong != 4 else draw(st.sampled_from([0, 1, 2**63, len(header) + 1]))
    return draw(st.binary(max_size=40)) if wrong == 5 else struct.pack("<Q", length) + header + data


def a_forged_manifest_is_damaged_or_whole() -> None:
    disk = two_generations(1)

    @example(text=DEEP)
    @example(text=b"[1]")
    @example(text=b'"\\ud800"')
    @example(text=b"9" * 5000)
    @given(text=manifests())
    def check(text: bytes) -> None:
        is_damaged_or_whole(disk, text)

    check()


def a_manifest_of_another_shape_is_damaged() -> None:
    """The checksum is right; one value is of another type, or missing."""
    disk = two_generations(1)
    body = json.loads(disk.read(NEWER / MANIFEST))
    for key in ("format", "step", "facts", "files"):
        for value in (None, [], "x", [[]], {"x": 1}, {"rank-0.safetensors": {}}, {"rank-0.safetensors": 1}):
            if key != "facts" or not isinstance(value, dict):
                assert is_damaged_or_whole(disk, resealed({**body, key: value})), f"{key} may be {value}"
        rest = {name: value for name, value in body.items() if name != key}
        assert is_damaged_or_whole(disk, resealed(rest)), f"{key} may be missing"


def is_damaged_or_whole(disk: RecordedDisk, text: bytes) -> bool:
    """Whether the newer generation is damaged with that manifest; no other error may be raised."""
    disk.damage(NEWER / MANIFEST, text)
    try:
        generation = read_generation(NEWER, disk)
        assert isinstance(generation.step, int) and isinstance(generation.facts, dict)
        generation.arrays()
    except Damaged as error:
        assert "\n" not in str(error)
        return True
    return False


def a_forged_file_of_arrays_is_damaged_or_whole() -> None:
    """The checksum of the file is right."""
    disk = two_generations(1)

    @example(content=file_of("BF16"))
    @given(content=rank_files())
    def check(content: bytes) -> None:
        disk.damage(NEWER / MANIFEST, forged(content))
        disk.damage(NEWER / "rank-0.safetensors", content)
        try:
            arrays = read_generation(NEWER, disk).arrays()
            assert all(isinstance(array, np.ndarray) for array in arrays.values())
        except Damaged as error:
            assert str(NEWER) in str(error)

    check()


def forged(content: bytes) -> bytes:
    files = {"rank-0.safetensors": {"bytes": len(content), "crc32": crc32(content), "arrays": {}}}
    return sealed({"format": 2, "step": 2, "facts": {}, "files": files})
