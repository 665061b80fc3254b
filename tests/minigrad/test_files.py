"""Laws of minigrad/files.py: a file is replaced as a whole, through a link, and a pipe is written to."""

import os
import threading

import pytest

from minigrad.files import replacement


def write(file, text):
    with replacement(file) as part:
        part.write_text(text, encoding="utf-8")


def test_a_file_is_written_and_replaced(tmp_path):
    for text in ("first", "second"):
        write(tmp_path / "new" / "a.txt", text)
        assert (tmp_path / "new" / "a.txt").read_text(encoding="utf-8") == text
    assert os.listdir(tmp_path / "new") == ["a.txt"]


def test_what_fails_leaves_the_file(tmp_path):
    write(tmp_path / "a.txt", "first")
    with pytest.raises(OSError, match="cannot write .*a.txt: no"), replacement(tmp_path / "a.txt") as part:
        part.write_text("half", encoding="utf-8")
        raise OSError("no")
    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == "first" and len(os.listdir(tmp_path)) == 1


@pytest.mark.parametrize("there", [True, False])
def test_a_link_leads_to_the_file_that_is_replaced(there, tmp_path):
    (tmp_path / "far").mkdir()
    target, link = tmp_path / "far" / "a.txt", tmp_path / "b.txt"
    if there:
        write(target, "first")
    link.symlink_to(target)
    write(link, "second")
    assert link.is_symlink() and target.read_text(encoding="utf-8") == "second"
    assert os.listdir(target.parent) == ["a.txt"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes with names are POSIX's")
def test_a_pipe_is_written_to(tmp_path):
    os.mkfifo(pipe := tmp_path / "pipe")
    read = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text(encoding="utf-8")), daemon=True)
    reader.start()
    write(pipe, "words")
    reader.join(30)
    assert read == ["words"] and pipe.is_fifo() and os.listdir(tmp_path) == ["pipe"]
