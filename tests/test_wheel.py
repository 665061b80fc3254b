"""The wheel needs no clone: every file of the three packages is in it, and the commands run from it."""

import os
import re
import shutil
import subprocess
import sys
from copy import deepcopy
from email import message_from_string
from pathlib import Path
from zipfile import ZipFile

import pytest
from minigrad_course.classroom.wheel import sources
from minigrad_course.handout.handout import write_handout

from tests.minigrad_course.site.links import faults
from tests.minigrad_course.site.notebook_runs import runs_cell_by_cell

pytest.importorskip("hatchling", reason="no hatchling 1.27; pip install -e '.[test]'")

ROOT = Path(__file__).parents[1]
PACKAGES = ("minigrad", "backends", "lessons")
TOP = ("README.md", "LICENSE", "CITATION.cff", "pyproject.toml", "hatch_build.py")
NEW = "lessons/99_new/lesson.py"  # of a lesson that nothing else names
NO_SOURCES = ("__pycache__", "runs")
BUILD = "import sys; from hatchling import build; getattr(build, sys.argv[1])(sys.argv[2])"


def build(folder: Path, old: str = "", new: str = "", more: str = "", how: str = "build_wheel") -> ZipFile:
    """The wheel of this tree, and of a file ``more``, without network; ``old`` in its settings is ``new``."""
    source = folder / "source"
    source.mkdir()
    for name in TOP:
        shutil.copy(ROOT / name, source)
    for name in PACKAGES:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns(*NO_SOURCES))
    if more:
        (source / more).parent.mkdir()
        (source / more).touch()
    file = next(source / name for name in TOP[3:] if old in (ROOT / name).read_text(encoding="utf-8"))
    file.write_text(file.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    command = [sys.executable, "-c", BUILD, how, str(folder)]
    done = subprocess.run(command, cwd=source, capture_output=True, encoding="utf-8", timeout=120)
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr, done.stderr
    (wheel,) = folder.glob("*.whl")
    return ZipFile(wheel)


def every_file_is_in(wheel: ZipFile, *more: str) -> None:
    files = (path for name in PACKAGES for path in (ROOT / name).rglob("*") if path.is_file())
    paths = [path.relative_to(ROOT) for path in files]
    paths = [*more, *(path.as_posix() for path in paths if not {*NO_SOURCES} & {*path.parts})]
    paths = [re.sub("^lessons/(?!minigrad_course/)", "minigrad_course/lessons/", path) for path in paths]
    expected = {path.removeprefix("lessons/") for path in paths}
    expected |= {f"minigrad_course/repository/{name}" for name in TOP}
    missing = sorted(expected - set(wheel.namelist()))
    assert not missing, f"not in the wheel: {', '.join(missing)}"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build(tmp_path_factory.mktemp("wheel"))


def test_every_file_of_the_packages_is_in_the_wheel(wheel):
    every_file_is_in(wheel)


def test_the_autograders_wheel_has_the_same_files(wheel):
    """The one that `minigrad autograder` makes of the files of a tree, without a build tool."""
    built = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert set(sources(ROOT)) == built


def test_a_new_lesson_is_in_the_wheel(tmp_path):
    every_file_is_in(build(tmp_path, more=NEW), NEW)


@pytest.mark.parametrize(
    ("old", "new", "missing"),
    [
        ("NO_SOURCES = (", 'NO_SOURCES = ("06_data_parallel", ', "minigrad_course/lessons/06_data_parallel/"),
        ("NO_SOURCES = (", 'NO_SOURCES = ("assignments", ', "minigrad_course/lessons/assignments/"),
        ('"backends", "lessons/minigrad_course"]\n\n', '"backends"]\n\n', "minigrad_course/grading/"),
        ('"LICENSE", "README.md", ', "", "minigrad_course/repository/LICENSE"),
    ],
)
def test_the_law_sees_what_is_left_out(tmp_path, old, new, missing):
    with pytest.raises(AssertionError, match=missing):
        every_file_is_in(build(tmp_path, old, new))


def test_an_editable_install_copies_nothing(tmp_path):
    names = build(tmp_path, how="build_editable").namelist()
    assert [name for name in names if ".dist-info/" not in name] == ["_minigrad_course.pth"]


@pytest.fixture(scope="module")
def metadata(wheel):
    (name,) = [name for name in wheel.namelist() if name.endswith("dist-info/METADATA")]
    return message_from_string(wheel.read(name).decode())


def test_the_metadata_are_those_of_the_packaging_guide(metadata):
    assert metadata["License-Expression"] == "MIT AND CC-BY-SA-3.0"
    assert metadata.get_all("License-File") == ["LICENSE", "minigrad/datasets/ATTRIBUTION.md"]
    assert metadata["Author"] and metadata["Keywords"]
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert "Typing :: Typed" in metadata.get_all("Classifier", [])
    assert not any(line.startswith("License ::") for line in metadata.get_all("Classifier", []))


def leads_nowhere_that_an_index_lacks(metadata) -> None:
    """A reader of an index of packages has no files of ours: each link and picture has a whole address."""
    text = metadata.get_payload()
    assert text.strip(), "there is no description"
    targets = re.findall(r"\]\(([^)]+)\)", text)
    targets += [url.partition(", ")[2] for url in metadata.get_all("Project-URL", [])]
    assert not [target for target in targets if not re.match("https?://", target)]


def test_no_link_of_the_description_is_dead_on_an_index_of_packages(metadata):
    leads_nowhere_that_an_index_lacks(metadata)


def test_a_dead_link_of_the_description_is_seen(metadata):
    wrong = deepcopy(metadata)
    wrong.set_payload((ROOT / "README.md").read_text(encoding="utf-8"))
    with pytest.raises(AssertionError, match="lessons/pictures/proof.svg"):
        leads_nowhere_that_an_index_lacks(wrong)


def say_the_same(metadata, citation: str) -> None:
    """The licences of the wheel are those of the citation: of the code, and of the digits in it."""
    facts = re.findall(r"^ *(?:- )?(license|version|name): *(.+)$", citation, re.MULTILINE)
    licences = {value for name, value in facts if name == "license"}
    assert licences == set(metadata["License-Expression"].split(" AND "))
    assert [value for name, value in facts if name == "version"] == [metadata["Version"]]
    assert [value for name, value in facts if name == "name"] == [metadata["Author"]]


def test_the_citation_says_what_the_wheel_says(metadata):
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    say_the_same(metadata, text)
    for old, new in (("CC-BY-SA-3.0", "MIT"), ("license: MIT", "license: BSD-3-Clause"), ("0.1.0", "0.0.9")):
        assert old in text
        with pytest.raises(AssertionError):
            say_the_same(metadata, text.replace(old, new))


class Installed:
    """The wheel in a folder of its own, and an empty folder in which its commands run."""

    def __init__(self, wheel: ZipFile, folder: Path):
        self.library, self.here = folder / "library", folder / "here"
        self.here.mkdir()
        wheel.extractall(self.library)
        self.variables = {"PYTHONPATH": str(self.library)}

    def output(self, *arguments: str, status: int = 0, folder: str = ".") -> str:
        line = [sys.executable, "-m", "backends", *arguments]
        variables = {**os.environ, **self.variables}
        done = subprocess.run(
            line, cwd=self.here / folder, env=variables, capture_output=True, encoding="utf-8", timeout=240
        )
        assert done.returncode == status, done
        return done.stdout


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    return Installed(wheel, tmp_path_factory.mktemp("installed"))


def test_the_commands_run_from_the_wheel_in_an_empty_folder(installed):
    library, output = installed.library, installed.output
    assert output("--version").startswith("minigrad 0.")
    assert "06" in output("lesson") and "to-target" in output("experiment")
    assert f"0 of 6 answered in {library}" in output("lesson", "06", "--check", status=1)
    assert str(library) in output("lesson", "15")  # the shortest
    output("lesson", "--copy", "copy")
    assert "answered in 06_data_parallel/questions.py" in output(
        "lesson", "06", "--check", status=1, folder="copy"
    )
    graded = output("grade", "a2", "--answers", "--task", "ring_allgather")
    assert "15 of 15 points" in graded and str(library) in graded
    assert "PROVED" in output("prove", "--data", "2", "--net", "mlp", "--transport", "threads")


@pytest.mark.thorough
def test_a_notebook_of_the_wheel_runs(installed):
    installed.output("lesson", "15", "--notebook", "own.ipynb")
    text = (installed.here / "own.ipynb").read_text(encoding="utf-8")
    (installed.here / "empty").mkdir()
    assert "1. " in runs_cell_by_cell(text, installed.here / "empty", installed.variables)


def test_the_handout_of_the_wheel_is_that_of_a_clone(installed, tmp_path):
    installed.output("handout", "tree")
    write_handout(tmp_path / "clone")
    assert contents(installed.here / "tree") == contents(tmp_path / "clone")


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


@pytest.mark.thorough
def test_the_site_of_the_wheel_is_whole(wheel, tmp_path):
    """Built of one lesson, the shortest; no page leads to what only a clone has."""
    installed = Installed(wheel, tmp_path)
    for lesson in (installed.library / "minigrad_course" / "lessons").glob("[0-9]*"):
        if not lesson.name.startswith("15"):
            shutil.rmtree(lesson)
    said = installed.output("site", "build", "site")
    assert "no page of seeded bugs, which needs the tests of a clone" in said.splitlines()[0]
    assert "lesson 1 of 1: " in said
    site = installed.here / "site"
    pages = sorted(site.rglob("*.html"))
    assert f"{len(pages) - len(list(site.glob('explorables/*')))} pages" in said
    assert (site / "lessons" / "15_scale" / "lesson.html") in pages
    assert {page.name: faults(page, site) for page in pages if faults(page, site)} == {}
