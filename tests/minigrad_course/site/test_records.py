"""Laws of lessons/minigrad_course/site/recording.py and seeded_bugs.py: what a lesson printed, and what
laws say of seeded bugs, is recorded once, and only where it is right.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from minigrad_course.site import recording, seeded_bugs

from tests.bugs.mutant import mutant

ROOT = Path(__file__).parents[3]
LESSON = ROOT / "lessons" / "15_scale" / "lesson.py"
BUGS = '''"""A gallery: the lines of two bugs."""
import json, sys
for number, part in ((1, "ops"), (2, "losses")):
    print(json.dumps({"number": number, "of": 2, "part": part, "name": str(number)}))
'''

# Lessons


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A library of one loop and a lesson; what runs writes caches of Python and Numba beside them."""
    library, lesson = tmp_path / "library", tmp_path / "01_first" / "lesson.py"
    library.mkdir()
    lesson.parent.mkdir()
    (library / "loop.py").write_text("def double(x):\n    return 2 * x\n", encoding="utf-8")
    lesson.write_text("# %%\nprint(1)\n", encoding="utf-8")
    return library, lesson


def names_the_sources_alone(module: ModuleType, library: Path, lesson: Path) -> None:
    """Other sources have another name; what a run of them writes beside them is no source."""

    def digest() -> str:
        return module.digest(lesson, [(library, "**/*")])

    name = digest()
    for folder in (library, lesson.parent):
        (folder / "__pycache__").mkdir()
        for file in ("loop.cpython-311.pyc", "loop.double-1.py311.nbi", "loop.double-1.py311.1.nbc"):
            (folder / "__pycache__" / file).write_bytes(b"compiled")
    assert digest() == name, "what Python and Numba compile changes the name"
    for file in (library / "loop.py", lesson):
        text = file.read_text(encoding="utf-8")
        file.write_text(text + "# more\n", encoding="utf-8")
        assert digest() != name, f"another {file.name} has the same name"
        file.write_text(text, encoding="utf-8")
    assert digest() == name


def test_a_record_is_named_by_the_sources_alone(package):
    names_the_sources_alone(recording, *package)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("if COMPILED not in file.parts and file.is_file()", "if file.is_file() and file.suffix != '.pyc'"),
        ("+ [*lesson.parent.iterdir()]", "+ [lesson]\n    files = files[:-1]"),
        ("whole.update(hashlib.sha256(file.read_bytes()).digest())", "pass"),
    ],
)
def test_a_wrong_name_of_a_record_is_seen(package, right, wrong):
    with pytest.raises(AssertionError, match="name"):
        names_the_sources_alone(mutant("minigrad_course.site.recording", (right, wrong)), *package)


def test_a_library_that_was_run_has_the_digest_of_one_that_was_not(tmp_path):
    """A clone of the packages without caches beside this one, in which Numba has compiled loops."""
    command = [sys.executable, "-c", "import numpy as np; from minigrad import ops; ops.relu(np.ones(9))"]
    subprocess.run(command, cwd=ROOT, check=True)
    for top in ("minigrad", "backends", "lessons"):
        shutil.copytree(ROOT / top, tmp_path / top, ignore=shutil.ignore_patterns("__pycache__"))
    here = tmp_path / "lessons" / "minigrad_course"
    shared = [
        (tmp_path if folder == recording.ROOT else here, pattern) for folder, pattern in recording.SHARED
    ]
    clone = recording.digest(tmp_path / LESSON.relative_to(ROOT), shared)
    assert clone == recording.digest(LESSON)


def test_a_record_is_whole_or_not_there(package, tmp_path):
    _, lesson = package
    lesson.write_text("# %%\nprint('first')\n# %%\nraise ValueError('the reason')\n", encoding="utf-8")
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"lesson 01 failed: .*the reason; run it with minigrad"):
            recording.Recording.load(lesson, tmp_path / "records")
    assert not list((tmp_path / "records").rglob(recording.RESULT))


# Seeded bugs


def gallery(root: Path, text: str) -> None:
    (root / "tests" / "bugs").mkdir(parents=True, exist_ok=True)
    for package in (root / "tests", root / "tests" / "bugs"):
        (package / "__init__.py").touch()
    (root / "tests" / "bugs" / "gallery.py").write_text(text, encoding="utf-8")


def are_recorded_where_they_are_caught(module: ModuleType, root: Path) -> None:
    """All bugs once; nothing of a gallery that fails; and what is missing is said before it runs."""
    said: list[str] = []
    bugs = module.SeededBugs(root, root / "records")
    assert bugs.missing() == "the tests of a clone", "a wheel has no bugs"
    gallery(root, "import pytest_that_nobody_has\n" + BUGS)
    assert bugs.missing() == "pytest_that_nobody_has: pip install -e '.[test]'"
    gallery(root, BUGS.replace("json.dumps", "json.nothing"))
    with pytest.raises(RuntimeError, match="cannot be loaded"):
        bugs.missing()
    for end in ("sys.exit('bug 3 lives')", "print('a law printed this')"):
        main = "if __name__ == '__main__':\n    " + end
        gallery(root, f"{BUGS}{main}\n")
        assert bugs.missing() is None
        with pytest.raises((RuntimeError, json.JSONDecodeError), match="bug 3 lives|Expecting value"):
            bugs.load(said.append)
        assert not list(root.rglob("records/**/*.json")), "a gallery that failed is recorded"
    gallery(root, BUGS)
    said.clear()
    caught = bugs.load(said.append)
    assert [bug["name"] for bug in caught] == ["1", "2"]
    assert said == ["seeded bug 1 of 2: ops", "seeded bug 2 of 2: losses"]
    assert bugs.load(said.append) == caught and len(said) == 2, "they are hunted again"


def test_seeded_bugs_are_recorded_where_they_are_caught(tmp_path):
    are_recorded_where_they_are_caught(seeded_bugs, tmp_path)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("        if status:\n", "        if False:\n"),
        ("        if not self.record.is_file():\n            bugs", "        if True:\n            bugs"),
        ("if done.returncode and (module", "if False and (module"),
        ("        if self.record.is_file():\n            return None", "        return None"),
        ("bugs = self.hunt(say)\n            with replacement", "self.record.parent.mkdir(parents=True)\n"
         "            self.record.touch()\n            bugs = self.hunt(say)\n            with replacement"),
    ],
)  # fmt: skip
def test_a_bad_record_is_seen(tmp_path, right, wrong):
    broken = mutant("minigrad_course.site.seeded_bugs", (right, wrong))
    with pytest.raises((AssertionError, RuntimeError, pytest.fail.Exception)):
        are_recorded_where_they_are_caught(broken, tmp_path)


@pytest.mark.thorough
def test_what_laws_print_does_not_reach_the_lines_of_the_gallery():
    """Neither what a law prints nor what a process prints that it starts."""
    script = (
        "import os\nfrom tests.bugs import gallery, in_masks\nlines = gallery.own_output()\n"
        "print('a law prints')\nos.system('echo its process prints')\n"
        "gallery.main(lines, {'masks': in_masks.BUGS[:2]})\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, encoding="utf-8")
    assert done.returncode == 0 and "process prints" in done.stderr, done
    first, second = map(json.loads, done.stdout.splitlines())
    assert (first["number"], second["number"], second["of"], second["part"]) == (1, 2, 2, "masks")
    assert first["words"] and (ROOT / first["file"]).is_file()
