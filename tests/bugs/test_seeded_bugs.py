"""Every seeded bug is caught by its law, which is green without it: see ``python -m tests.bugs``."""

import pytest

from tests.bugs.bug import hunt
from tests.bugs.suite import PARTS

ALL = [bug for bugs in PARTS.values() for bug in bugs]
BUGS = [
    pytest.param(bug, id=f"{part}: {bug.name}", marks=[pytest.mark.thorough] * bug.thorough)
    for part, bugs in PARTS.items()
    for bug in bugs
]


@pytest.mark.parametrize("bug", BUGS)
def test_its_law_catches_the_bug(bug):
    hunt(bug)


def test_names_tell_the_bugs_apart():
    assert len({bug.name for bug in ALL}) == len(ALL)


def test_every_law_is_tried_in_every_run_on_19_of_20_bugs():
    quick = [bug for bug in ALL if not bug.thorough]
    assert {bug.law for bug in quick} == {bug.law for bug in ALL}
    assert len(quick) >= 0.95 * len(ALL)
