"""What catches bugs is itself put to the test: a bug that is not caught as it should be is told."""

import pytest

from minigrad.serial import Serial
from tests.bugs.bug import Bug, Caught, Escaped, green, hunt
from tests.bugs.definition import Definition, changed, definition
from tests.bugs.world import World

WHERE, SHARE = "Strategy.loss_weight", "return len(mine) / len(batch)"


def share() -> float:
    return Serial().loss_weight("a", "ab")  # pyright: ignore[reportArgumentType]


def holds() -> None:
    assert share() == 0.5, f"one of two is a share of {share()}"


def fails() -> None:
    raise ValueError("always red")


def test_a_bug_is_caught_with_its_words():
    words = "AssertionError: one of two is a share of 1.0"
    caught = hunt(Bug("a bug", WHERE, SHARE, "return 1.0", holds, "a share of 1"))
    assert caught == Caught(words, caught.seconds)
    assert green(holds) > 0


@pytest.mark.parametrize(
    ("bug", "words"),
    [
        ((WHERE, SHARE, f"{SHARE} * 1", holds, "share"), "is green with the bug 'a bug', although it met it"),
        (
            ("Grid", "class Grid", "class Grid ", holds, "share"),
            "with the bug 'a bug', as it does not use backends.grid",
        ),
        ((WHERE, SHARE, "return 1.0", holds, "other"), "of two is a share of 1.0; wanted was 'other'"),
        ((WHERE, SHARE, "return 1.0", fails, "red"), "is red without any bug: ValueError: always red"),
        ((WHERE, SHARE, "return (", holds, "share"), "SyntaxError: .* wanted was 'share'"),
        ((WHERE, "no such line", "", holds, "share"), "'a bug': .*loss_weight holds 0 times 'no such"),
        ((WHERE, "mine", "", holds, "share"), "'a bug': .*loss_weight holds 2 times 'mine': move the bug"),
        (("no_such_name", SHARE, "", holds, "share"), "'a bug': no_such_name names 0 definitions"),
        (("place", SHARE, "", holds, "share"), "'a bug': place names .* definitions .* write more"),
    ],
    ids=[
        *("harmless", "elsewhere", "other words", "red anyway", "no Python", "moved on", "more than one"),
        *("no such definition", "several definitions"),
    ],
)
def test_one_that_is_not_is_told(bug, words):
    with pytest.raises((Escaped, LookupError), match=words):
        hunt(Bug("a bug", *bug))


def test_a_world_is_its_own():
    where = definition(WHERE)
    world = World({where.module: [(where, SHARE, "return 1.0")]})
    assert world.again(share)() == 1.0
    assert world.load("minigrad.train").Serial is world.load("minigrad.serial").Serial is not Serial
    assert world.load("minigrad").strategy is world.load(where.module)
    assert share() == World().again(share)() == 0.5


IN_A_CLASS = """class A:
    @property
    def b(self):
        if self.c:
            return 1

        return 2
"""
AT_THE_TOP = """def b():
    return 1


def c():
    if True:
        return 1

    return 2
"""


@pytest.mark.parametrize(("text", "name"), [(IN_A_CLASS, "A.b"), (AT_THE_TOP, "c")])
def test_a_bug_stays_where_its_function_goes(text, name):
    """Into a class, to another place of a module, or out of it: the edit is that of the function alone."""
    right, wrong = "    return 1\n\n    return", "    return 1\n\n    if True:\n        return"
    place = Definition("module", name)
    assert changed(text, place, right, wrong).count("if True:") == text.count("if True:") + 1
    compile(changed(text, place, right, wrong), "changed", "exec")
