"""Laws of lessons/minigrad_course/crashes/crash_states.py: the states after a crash hold those of each
cause, and words say what a program did and what was left.
"""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from minigrad_course.crashes.crash_states import in_words
from minigrad_course.crashes.recorded_disk import RecordedDisk

from tests.minigrad_course.crashes import crash_state_laws
from tests.minigrad_course.crashes.disk_calls import CALLS, outcome


def test_words_of_a_program():
    crash_state_laws.words_of_a_program()


@given(calls=st.lists(CALLS, max_size=10))
def test_there_are_words_for_each_operation(calls):
    disk = RecordedDisk()
    for call in calls:
        outcome(disk, Path("/"), *call)
    assert len(in_words(disk)) == len(disk.operations)


def test_the_states_are_those_of_kills_and_of_losses():
    crash_state_laws.the_states_are_those_of_kills_and_of_losses()


def test_words_of_what_is_left():
    crash_state_laws.words_of_what_is_left()
