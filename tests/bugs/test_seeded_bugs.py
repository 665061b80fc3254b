"""Every seeded bug is caught by its law, which is green without it: see ``python -m tests.bugs``."""

import pytest

from tests.bugs.bug import hunt
from tests.bugs.suite import PARTS

BUGS = [pytest.param(bug, id=f"{part}: {bug.name}") for part, bugs in PARTS.items() for bug in bugs]


@pytest.mark.parametrize("bug", BUGS)
def test_its_law_catches_the_bug(bug):
    hunt(bug)


def test_names_tell_the_bugs_apart():
    names = [bug.name for bugs in PARTS.values() for bug in bugs]
    assert len(names) == len(set(names))
