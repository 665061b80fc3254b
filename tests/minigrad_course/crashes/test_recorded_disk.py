"""Laws of lessons/minigrad_course/crashes/recorded_disk.py: the disk in memory does what the real one does,
and loses what POSIX lets it lose.
"""

import tempfile
from pathlib import Path
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st
from minigrad_course.crashes.recorded_disk import RecordedDisk

from backends.checkpoint.disk import Disk
from tests.minigrad_course.crashes.disk_calls import CALLS, outcome


@given(calls=st.lists(CALLS, max_size=12))
def test_it_does_what_the_real_disk_does(calls):
    with tempfile.TemporaryDirectory() as place, patch("os.fsync"):
        folder, real, recorded = Path(place), Disk(), RecordedDisk()
        recorded.make_folder(folder)
        for call in calls:
            assert outcome(recorded, folder, *call) == outcome(real, folder, *call), call
        there = {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}
    results = {path: content for path, content in recorded.files().items() if folder in path.parents}
    assert results == there


def states(disk):
    return {frozenset((str(path), content) for path, content in state.files().items()) for state in disk}


def test_a_name_and_bytes_that_are_not_synced_may_be_lost_in_any_order():
    disk = RecordedDisk()
    disk.fill(Path("/a"), b"12")
    disk.rename(Path("/a"), Path("/b"))
    empty = frozenset({("/", None)})
    contents = (b"12", b"", b"1", b"\0\0", b"\x002")
    names = {frozenset({("/", None), (name, content)}) for name in ("/a", "/b") for content in contents}
    assert states(disk.power_losses()) == {empty} | names


def test_what_is_synced_stays():
    disk = RecordedDisk()
    disk.write(Path("/a"), b"12")
    disk.sync_folder(Path("/"))
    disk.rename(Path("/a"), Path("/b"))
    assert states(disk.power_losses()) == {frozenset({("/", None), (name, b"12")}) for name in ("/a", "/b")}
    disk.sync_folder(Path("/"))
    assert states(disk.power_losses()) == {frozenset({("/", None), ("/b", b"12")})}


def test_a_kill_loses_nothing_and_makes_nothing_safe():
    disk = RecordedDisk()
    disk.write(Path("/a"), b"12")
    disk.sync_folder(Path("/"))
    disk.remove(Path("/a"))
    killed = disk.killed(len(disk.operations))
    assert killed.files() == disk.files() == {Path("/"): None}
    assert len(list(killed.power_losses())) == 2
