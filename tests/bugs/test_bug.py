"""What catches bugs is itself put to the test: a bug that is not caught as it should be is told."""

import pytest

from minigrad.serial import Serial
from tests.bugs.bug import Bug, Caught, Escaped, green, hunt
from tests.bugs.world import World

WHERE, SHARE = "minigrad.strategy", "return len(mine) / len(batch)"


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
        (("backends.grid", "model", "", holds, "share"), "with the bug 'a bug', as it does not use backends"),
        ((WHERE, SHARE, "return 1.0", holds, "other"), "of two is a share of 1.0; wanted was 'other'"),
        ((WHERE, SHARE, "return 1.0", fails, "red"), "is red without any bug: ValueError: always red"),
        ((WHERE, SHARE, "return (", holds, "share"), "SyntaxError: .* wanted was 'share'"),
        ((WHERE, "no such line", "", holds, "share"), "'a bug': minigrad.strategy holds 0 times 'no such"),
        (
            (WHERE, "self", "", holds, "share"),
            "'a bug': minigrad.strategy holds [0-9]+ times 'self': move the bug",
        ),
    ],
    ids=["harmless", "elsewhere", "other words", "red anyway", "no Python", "moved on", "more than one"],
)
def test_one_that_is_not_is_told(bug, words):
    with pytest.raises((Escaped, LookupError), match=words):
        hunt(Bug("a bug", *bug))


def test_a_world_is_its_own():
    world = World({WHERE: [(SHARE, "return 1.0")]})
    assert world.again(share)() == 1.0
    assert world.load("minigrad.train").Serial is world.load("minigrad.serial").Serial is not Serial
    assert world.load("minigrad").strategy is world.load(WHERE)
    assert share() == World().again(share)() == 0.5
