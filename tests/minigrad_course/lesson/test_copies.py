"""Laws of lessons/minigrad_course/lesson/lessons.py: ``minigrad lesson --copy DIR`` makes a folder to work
in, where the commands then use the copy.
"""

from types import ModuleType

import pytest
from minigrad_course import LESSONS
from minigrad_course.lesson import lessons as own

from tests.bugs.mutant import mutant


def copies_without_answers(module: ModuleType, folder) -> None:
    """Every file is copied as it is, save answers; a folder with a file in it is refused and unchanged."""
    module.copy_lessons(folder / "new")
    for file in (path for path in (folder / "new").rglob("*") if path.is_file()):
        assert file.read_bytes() == (LESSONS / file.relative_to(folder / "new")).read_bytes()
    for lesson in own.lessons():
        assert (folder / "new" / lesson.file.relative_to(LESSONS)).is_file()
        assert (folder / "new" / lesson.file.parent.name / "questions.py").is_file()
    assert len(list((folder / "new" / "assignments").glob("*/submission.py"))) == 10
    left_out = ["answers.py", "instructor.md", "*.pyc"]
    assert not [path for name in left_out for path in (folder / "new").rglob(name)]
    (folder / "empty").mkdir()
    module.copy_lessons(folder / "empty")
    (folder / "work").mkdir()
    (folder / "work" / "mine.py").write_text("mine", encoding="utf-8")
    for taken in (folder / "work", folder / "work" / "mine.py"):
        with pytest.raises(ValueError, match="is not an empty folder; name a new one"):
            module.copy_lessons(taken)
    assert [path.name for path in (folder / "work").iterdir()] == ["mine.py"]


def uses_the_copy(module: ModuleType, folder, monkeypatch) -> None:
    """In the folder of a copy the commands take its files, elsewhere the installed ones."""
    monkeypatch.chdir(folder)
    file = LESSONS / "06_data_parallel" / "questions.py"
    assert module.own_copy(file) == file
    copy = folder / "06_data_parallel" / "questions.py"
    copy.parent.mkdir()
    copy.write_text("mine", encoding="utf-8")
    assert module.own_copy(file).resolve() == copy
    other = folder.parent / "another" / "06_data_parallel" / "questions.py"
    assert module.own_copy(other) == other


def test_a_copy_has_all_but_the_answers(tmp_path):
    copies_without_answers(own, tmp_path)


def test_commands_use_the_copy(tmp_path, monkeypatch):
    uses_the_copy(own, tmp_path, monkeypatch)


@pytest.mark.parametrize(("old", "new"), [('"answers.py", ', ""), (', "assignments")', ",)")])
def test_a_broken_copy_is_seen(tmp_path, old, new):
    with pytest.raises((AssertionError, OSError, pytest.fail.Exception)):
        copies_without_answers(mutant("minigrad_course.lesson.lessons", (old, new)), tmp_path)


@pytest.mark.parametrize(
    ("old", "new"), [("copy if copy.exists() else file", "copy"), ("copy if copy.exists() else file", "file")]
)
def test_a_broken_choice_of_the_copy_is_seen(tmp_path, monkeypatch, old, new):
    with pytest.raises(AssertionError):
        uses_the_copy(mutant("minigrad_course.lesson.lessons", (old, new)), tmp_path, monkeypatch)
