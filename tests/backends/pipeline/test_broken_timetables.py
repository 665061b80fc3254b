"""Laws of backends/pipeline/validator.py: broken timetables, each refused by the name of the rank and
the instruction that are wrong.
"""

import pytest

from tests.backends.pipeline.broken_timetables import BROKEN, names_what_is_wrong


@pytest.mark.parametrize("bug", BROKEN)
def test_a_broken_timetable_is_refused_by_the_name_of_what_is_wrong(bug):
    names_what_is_wrong(bug)
