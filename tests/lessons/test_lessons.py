"""Every lesson runs as a plain script, anywhere, in bounded time, and draws where it says it does."""

import ast
import os
import re
import resource
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LESSONS = sorted((ROOT / "lessons").glob("*/lesson.py"))
SECONDS = 60  # of a processor; how long that lasts is the machine's affair


def table_lines(text: str) -> list[str]:
    """The lines that a narrow terminal would break apart: tables and time lines, not sentences."""
    return [line for line in text.splitlines() if "|" in line or len(re.findall(r"\S {2,}(?=\S)", line)) > 1]


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.parent.name)
def test_runs_as_a_plain_script(lesson, tmp_path):
    """Its assertions hold; all it leaves behind are figures under runs/lessons/<its folder>."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    found = subprocess.run(
        [sys.executable, str(lesson)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "MPLBACKEND": "Agg"},
        capture_output=True,
        text=True,
        timeout=4 * SECONDS,
        preexec_fn=partial(resource.setrlimit, resource.RLIMIT_CPU, (SECONDS, SECONDS)),
    )
    assert found.returncode == 0, found.stdout + found.stderr
    assert found.stdout.strip() and not found.stderr
    assert not [line for line in table_lines(found.stdout) if len(line) > 80]
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    for file in files:
        assert file.parent == tmp_path / "runs" / "lessons" / lesson.parent.name
        assert file.suffix == ".png" and file.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.parent.name)
def test_says_what_it_is_and_holds_itself_to_it(lesson):
    """The docstring names lesson, lecture section and command; it is cut into cells; it asserts."""
    text = lesson.read_text()
    tree = ast.parse(text)
    opening = ast.get_docstring(tree) or ""
    number = lesson.parent.name.split("_")[0]
    assert opening.startswith(f"Lesson {number}. ") and "Lecture section" in opening
    assert f"python lessons/{lesson.parent.name}/lesson.py" in opening
    assert text.count("# %%") > 3
    assert any(isinstance(node, ast.Assert) for node in ast.walk(tree))
    assert f'start_lesson("{lesson.parent.name}")' in text  # of many processes one draws the figures
