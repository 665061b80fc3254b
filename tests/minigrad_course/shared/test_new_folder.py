"""Laws of lessons/minigrad_course/shared/new_folder.py: a folder is written as a whole or not at all."""

import errno
import os
import shutil

import pytest
from minigrad_course.shared.new_folder import new_folder

from tests.bugs.mutant import mutant

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "what/was/copied")
OF_COPYTREE = shutil.Error([("from", "to", "[Errno 28] No space left on device"), ("b", "c", "no")])


@pytest.mark.parametrize("was_there", [True, False])
@pytest.mark.parametrize("error", [FULL, OF_COPYTREE])
def test_what_fails_is_taken_away_and_named(error, was_there, tmp_path):
    folder = tmp_path / "course"
    if was_there:
        folder.mkdir()
    place = folder.stat().st_ino if was_there else None  # the shell may be there
    with (
        pytest.raises(OSError, match="cannot write .*course: .*No space left on device; name another"),
        new_folder(folder),
    ):
        (folder / "deep").mkdir(parents=True)
        (folder / "deep" / "half").touch()
        (folder / "half").touch()
        raise error
    assert folder.exists() == was_there and not (was_there and os.listdir(folder))
    assert not was_there or folder.stat().st_ino == place
    with new_folder(folder):
        folder.mkdir(exist_ok=True)
        (folder / "whole").touch()
    assert os.listdir(folder) == ["whole"]


def refuses_another_folder(fill, path):
    """A folder with a file in it, and a file, stay as they are."""
    (path / "mine").touch()
    for taken in (path, path / "mine"):
        with pytest.raises(ValueError, match="is not an empty folder; name a new one"), fill(taken):
            raise AssertionError("not reached")
    assert os.listdir(path) == ["mine"]


def test_another_folder_is_refused_and_stays(tmp_path):
    refuses_another_folder(new_folder, tmp_path)


@pytest.mark.parametrize("check", [" or any(folder.iterdir())", "not folder.is_dir() or "])
def test_the_law_sees_a_check_left_out(check, tmp_path):
    broken = mutant("minigrad_course.shared.new_folder", (check, ""))
    with pytest.raises((AssertionError, OSError)):
        refuses_another_folder(broken.new_folder, tmp_path)
