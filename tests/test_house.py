"""The house stands on its floors: no parts import one another, and its picture is drawn as it is."""

import pytest

from tests.house import ROOT, floors, pairs, parts, picture


def test_no_two_parts_import_one_another():
    assert pairs(parts()) == []


def test_the_picture_is_that_of_the_house():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert picture(parts()) in text, "draw it again: python -m tests.house"


def test_a_planted_circle_is_seen():
    circle = {"backends/a": {"backends/b"}, "backends/b": {"backends/a"}, "backends/c": set()}
    assert pairs(circle) == [("backends/a", "backends/b")]
    with pytest.raises(ValueError, match="circle of imports among backends/a, backends/b"):
        floors(circle)
