"""Laws of lessons/minigrad_course/shared/style.py: every lesson runs as a plain script, anywhere, in bounded
time, and draws where it says it does.
"""

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
SHORT = ("11_model_parallel",)  # of two seconds; the thorough lane runs all
SECONDS = 60  # of a processor; how long that lasts is the machine's affair


def table_lines(text: str) -> list[str]:
    """The lines that a narrow terminal would break apart: tables and time lines, not sentences."""
    return [line for line in text.splitlines() if "|" in line or len(re.findall(r"\S {2,}(?=\S)", line)) > 1]


def run_lesson(lesson, folder):
    """Run a script in a folder, with a check of all figures that it saves."""
    checks = str(Path(__file__).with_name("checked_figures"))
    paths = [checks, str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.run(
        [sys.executable, str(lesson)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "MPLBACKEND": "Agg"},
        capture_output=True,
        encoding="utf-8",
        timeout=4 * SECONDS,
        preexec_fn=partial(resource.setrlimit, resource.RLIMIT_CPU, (SECONDS, SECONDS)),
    )


@pytest.mark.parametrize(
    "lesson",
    [
        pytest.param(lesson, marks=[] if lesson.parent.name in SHORT else pytest.mark.thorough)
        for lesson in LESSONS
    ],
    ids=lambda path: path.parent.name,
)
def test_runs_as_a_plain_script(lesson, tmp_path):
    """The lesson's assertions hold; all that it leaves are figures under runs/lessons/<its folder>.

    They keep the laws of ``figure_laws.py``, which ``checked_figures`` applies to each that is saved.
    """
    process = run_lesson(lesson, tmp_path)
    assert process.returncode == 0, process.stdout + process.stderr
    assert process.stdout.strip() and not process.stderr
    assert not [line for line in table_lines(process.stdout) if len(line) > 80]
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    for file in files:
        assert file.parent == tmp_path / "runs" / "lessons" / lesson.parent.name
        assert file.read_bytes().startswith({".png": b"\x89PNG", ".svg": b"<svg "}[file.suffix])


@pytest.mark.parametrize(("color", "status"), [("tab:blue", 1), ("#0072B2", 0)])
def test_a_figure_in_other_colors_ends_a_lesson(tmp_path, color, status):
    script = f"import matplotlib.pyplot as plt\nplt.plot([1, 2], color={color!r})\nplt.savefig('f.png')\n"
    (tmp_path / "lesson.py").write_text(script, encoding="utf-8")
    process = run_lesson(tmp_path / "lesson.py", tmp_path)
    assert process.returncode == status and ("not of the palette" in process.stderr) == bool(status), (
        process.stderr
    )


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.parent.name)
def test_says_what_it_is_and_holds_itself_to_it(lesson):
    """The docstring names lesson, lecture section and command; it is cut into cells; it asserts."""
    text = lesson.read_text(encoding="utf-8")
    tree = ast.parse(text)
    opening = ast.get_docstring(tree) or ""
    number = lesson.parent.name.split("_")[0]
    assert opening.startswith(f"Lesson {number}. ") and "Lecture section" in opening
    assert f"python lessons/{lesson.parent.name}/lesson.py" in opening
    assert text.count("# %%") > 3
    assert any(isinstance(node, ast.Assert) for node in ast.walk(tree))
    assert f'start_lesson("{lesson.parent.name}")' in text  # of many processes one draws the figures


def parts_without_a_source(text):
    """The headings of the numbered parts that do not say what to read, in a separate paragraph."""
    parts = re.split(r"^# ## (?=\d)", text, flags=re.MULTILINE)[1:]
    return [part.splitlines()[0] for part in parts if not re.search(r"(markdown\]|\n#)\n# Read: ", part)]


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.parent.name)
def test_every_part_says_what_to_read(lesson):
    assert parts_without_a_source(lesson.read_text(encoding="utf-8")) == []


def test_the_check_of_sources_sees_a_part_without_one():
    text = "# ## 1. One\n#\n# Read: a book.\n#\n# ## 2. Two\n# Read: a text.\n"
    assert parts_without_a_source(text) == ["2. Two"]


def test_the_surveys_of_the_course_are_cited():
    texts = [lesson.read_text(encoding="utf-8") for lesson in LESSONS]
    for survey in ("Ben-Nun and Hoefler 2019, arXiv:1802.09941", "Gholami et al. 2018, arXiv:1712.04432"):
        assert sum(survey in text for text in texts) > 1, survey
