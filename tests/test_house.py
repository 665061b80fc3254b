"""The house stands on its floors: no parts or folders import one another, and its picture is up to date."""

import pytest

from tests.house import ROOT, floors, folders, pairs, parts, picture


@pytest.fixture(scope="module")
def arrows():
    return parts()


def test_no_two_parts_import_one_another(arrows):
    assert pairs(arrows) == []


def test_no_two_folders_import_one_another():
    assert pairs(folders()) == []


def test_a_folder_and_a_folder_in_it_are_seen_to_import_one_another(tmp_path):
    inner = tmp_path / "backends" / "comm" / "collectives"
    inner.mkdir(parents=True)
    (inner.parent / "link.py").write_text("def f():\n    from .collectives import ring", encoding="utf-8")
    (inner / "ring.py").write_text("from ..wire import pack", encoding="utf-8")
    (inner.parent / "wire.py").write_text("import numpy", encoding="utf-8")
    assert pairs(folders(tmp_path)) == [("backends/comm/", "backends/comm/collectives/")]
    (inner / "ring.py").write_text("from .doubling import Fold", encoding="utf-8")
    assert pairs(folders(tmp_path)) == []


def test_the_picture_is_that_of_the_house(arrows):
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert picture(arrows) in text, "draw it again: python -m tests.house"


def test_a_planted_circle_is_seen():
    circle = {"backends/a": {"backends/b"}, "backends/b": {"backends/a"}, "backends/c": set()}
    assert pairs(circle) == [("backends/a", "backends/b")]
    with pytest.raises(ValueError, match="circle of imports among backends/a, backends/b"):
        floors(circle)
