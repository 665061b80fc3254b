"""Laws of lessons/minigrad_course/crashes/crash_states.py: the states after a crash, and in words what a
program did.
"""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from minigrad_course.crashes.crash_states import crash_states, files_in_words, in_words, torn_writes
from minigrad_course.crashes.recorded_disk import RecordedDisk

from tests.minigrad_course.crashes.disk_calls import CALLS, outcome


def replaced():
    """A program that writes, syncs, renames and removes."""
    disk = RecordedDisk()
    disk.make_folder(Path("/run"))
    disk.write(Path("/run/new"), b"1234")
    disk.rename(Path("/run/new"), Path("/run/old"))
    disk.sync_folder(Path("/run"))
    disk.remove(Path("/run/old"))
    disk.remove_folder(Path("/run"))
    return disk


def words_of_a_program():
    assert in_words(replaced()) == [
        "make folder /run",
        "make file /run/new",
        "write 4 bytes into /run/new",
        "sync /run/new",
        "rename /run/new to /run/old",
        "sync /run",
        "remove /run/old",
        "remove /run",
    ]


@given(calls=st.lists(CALLS, max_size=6))
def the_states_are_those_of_kills_and_of_losses(calls):
    """Nothing happened, all happened, and each torn write are among them; without a crash nothing is torn."""
    disk = RecordedDisk()
    for call in calls:
        outcome(disk, Path("/"), *call)
    states = list(crash_states(disk))
    killed = [state.disk.files() for state in states if state.cause == "a kill"]
    powerless = [state.disk.files() for state in states if state.cause == "a loss of power"]
    assert disk.files() in killed and disk.files() in powerless and RecordedDisk().files() in powerless
    for length in range(len(disk.operations) + 1):
        before = disk.killed(length)
        assert before.files() in killed
        assert all(torn.files() in killed for torn in torn_writes(before))


def words_of_what_is_left():
    disk = replaced()
    torn = [files_in_words(state, disk) for state in torn_writes(disk.killed(3))]
    assert torn == [
        ["/run/new: empty"],
        ["/run/new: the first 1 of 4 bytes"],
        ["/run/new: the first 2 of 4 bytes"],
        ["/run/new: the first 3 of 4 bytes"],
    ]
    whole = disk.killed(5)
    assert files_in_words(whole, disk) == ["/run/old: 4 bytes, as written"]
    assert files_in_words(whole.damaged({Path("/run/old"): bytes(4)}), disk) == [
        "/run/old: 4 bytes, all zero"
    ]
    assert files_in_words(whole.damaged({Path("/run/old"): b"12x4"}), disk) == [
        "/run/old: 4 bytes, not as written"
    ]
