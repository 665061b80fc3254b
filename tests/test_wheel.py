"""The wheel needs no clone: every file of the three packages is in it, and the commands run from it."""

import os
import re
import shutil
import subprocess
import sys
from email import message_from_string
from pathlib import Path
from zipfile import ZipFile

import pytest

pytest.importorskip("hatchling", reason="no hatchling 1.27; pip install -e '.[test]'")

ROOT = Path(__file__).parents[1]
PACKAGES = ("minigrad", "backends", "lessons")
NO_SOURCES = ("__pycache__", "runs")
BUILD = "import sys; from hatchling import build; build.build_wheel(sys.argv[1])"


def build(folder: Path, old: str = "", new: str = "") -> ZipFile:
    """The wheel of this tree, built without network; ``old`` in pyproject.toml is replaced by ``new``."""
    source = folder / "source"
    source.mkdir()
    for name in ("README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in PACKAGES:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns(*NO_SOURCES))
    settings = (ROOT / "pyproject.toml").read_text()
    assert old in settings
    (source / "pyproject.toml").write_text(settings.replace(old, new))
    command = [sys.executable, "-c", BUILD, str(folder)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr, done.stderr
    (wheel,) = folder.glob("*.whl")
    return ZipFile(wheel)


def every_file_is_in(wheel: ZipFile) -> None:
    files = (path for name in PACKAGES for path in (ROOT / name).rglob("*") if path.is_file())
    expected = {path.relative_to(ROOT) for path in files}
    expected = {path.as_posix() for path in expected if not any(part in NO_SOURCES for part in path.parts)}
    expected = {
        re.sub("^lessons/(?!minigrad_course/)", "minigrad_course/lessons/", path) for path in expected
    }
    expected = {path.removeprefix("lessons/") for path in expected}
    missing = sorted(expected - set(wheel.namelist()))
    assert not missing, f"not in the wheel: {', '.join(missing)}"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build(tmp_path_factory.mktemp("wheel"))


def test_every_file_of_the_packages_is_in_the_wheel(wheel):
    every_file_is_in(wheel)


@pytest.mark.parametrize(
    ("old", "new", "missing"),
    [
        (
            '"lessons/06_data_parallel" = "minigrad_course/lessons/06_data_parallel"',
            "",
            "minigrad_course/lessons/06_data_parallel/",
        ),
        (
            '"lessons/assignments" = "minigrad_course/lessons/assignments"',
            "",
            "minigrad_course/lessons/assignments/",
        ),
        ('"backends", "lessons/minigrad_course"]\n\n', '"backends"]\n\n', "minigrad_course/grading/"),
    ],
)
def test_the_law_sees_what_is_left_out(tmp_path, old, new, missing):
    with pytest.raises(AssertionError, match=missing):
        every_file_is_in(build(tmp_path, old, new))


def test_the_metadata_are_those_of_the_packaging_guide(wheel):
    (name,) = [name for name in wheel.namelist() if name.endswith("dist-info/METADATA")]
    metadata = message_from_string(wheel.read(name).decode())
    assert metadata["License-Expression"] == "MIT AND CC-BY-SA-3.0"
    assert metadata.get_all("License-File") == ["LICENSE", "minigrad/datasets/ATTRIBUTION.md"]
    assert metadata["Author"] == "minigrad contributors" and metadata["Keywords"]
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert "Typing :: Typed" in metadata.get_all("Classifier", [])
    assert not any(line.startswith("License ::") for line in metadata.get_all("Classifier", []))


def test_the_commands_run_from_the_wheel_in_an_empty_folder(wheel, tmp_path):
    library, here = tmp_path / "library", tmp_path / "here"
    here.mkdir()
    wheel.extractall(library)
    variables = {**os.environ, "PYTHONPATH": str(library)}

    def output(*arguments: str, status: int = 0, folder: Path = here) -> str:
        line = [sys.executable, "-m", "backends", *arguments]
        done = subprocess.run(line, cwd=folder, env=variables, capture_output=True, text=True, timeout=240)
        assert done.returncode == status, done
        return done.stdout

    assert output("--version").startswith("minigrad 0.")
    assert "06" in output("lesson") and "to-target" in output("experiment")
    assert f"0 of 3 answered in {library}" in output("lesson", "06", "--check", status=1)
    assert str(library) in output("lesson", "15")  # the shortest
    output("lesson", "--copy", "copy")
    assert "answered in 06_data_parallel/questions.py" in output(
        "lesson", "06", "--check", status=1, folder=here / "copy"
    )
    graded = output("grade", "a2", "--answers", "--task", "ring_allgather")
    assert "15 of 15 points" in graded and str(library) in graded
    assert "PROVED" in output("prove", "--data", "2", "--net", "mlp", "--transport", "threads")
    assert not output("site", "build", status=1)  # the reason, in one line, is an error
