"""Every seeded bug is caught by its law, which is green without it: see ``python -m tests.bugs``."""

import gc
from multiprocessing import get_context

import pytest

from tests.bugs.bug import hunt
from tests.bugs.suite import PARTS
from tests.bugs.world import world_without_bugs
from tests.conftest import settle

NAMED = [(f"{part}: {bug.name}", bug) for part, bugs in PARTS.items() for bug in bugs]
ALL = [bug for _, bug in NAMED]
BUGS = [
    pytest.param(number, id=name, marks=[pytest.mark.thorough] if bug.thorough else [])
    for number, (name, bug) in enumerate(NAMED)
]


@pytest.fixture(scope="module")
def hunter():
    """A process that hunts; after 500 bugs and 700 MB another one: what Numba has compiled is never freed."""
    with get_context("spawn").Pool(1, prepare, maxtasksperchild=500) as pool:
        yield pool


def prepare():
    """Load what all hunts share, and leave it out of Python's searches for unused objects, now rarer.

    Each bug loads a hundred modules: the searches took a tenth of the time, and the memory is the same.
    """
    settle()
    gc.set_threshold(50_000)
    for module in {bug.law.__module__ for bug in ALL}:
        world_without_bugs().load(module)
    gc.collect()
    gc.freeze()


def hunt_number(number):
    """By its number: not every law can be sent to another process."""
    hunt(ALL[number])


@pytest.mark.parametrize("number", BUGS)
def test_its_law_catches_the_bug(number, hunter):
    hunter.apply(hunt_number, [number])


def test_names_tell_the_bugs_apart():
    assert len({bug.name for bug in ALL}) == len(ALL)


def test_every_law_is_tried_in_every_run_on_19_of_20_bugs():
    quick = [bug for bug in ALL if not bug.thorough]
    assert {bug.law for bug in quick} == {bug.law for bug in ALL}
    assert len(quick) >= 0.95 * len(ALL)
