"""Laws of lessons/minigrad_course/site/notebook.py, cells.py and
lessons/minigrad_course/shared/figure_canvas.py: notebooks run where they are opened, without the file of the
lesson, and with pictures below the cells.
"""

import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from matplotlib.figure import Figure
from minigrad_course import LESSONS
from minigrad_course.lesson.command import write_lesson
from minigrad_course.lesson.lessons import Lesson, lessons, own_copy
from minigrad_course.shared import figure_canvas
from minigrad_course.site import notebook

from tests.bugs.mutant import mutant
from tests.minigrad_course.site.notebook_runs import runs_cell_by_cell, runs_in_a_kernel

CHEAP = LESSONS / "11_model_parallel" / "lesson.py"


def test_a_notebook_runs_cell_by_cell_in_an_empty_folder(tmp_path):
    printed = runs_cell_by_cell(notebook.notebook(CHEAP), empty(tmp_path))
    assert printed.startswith("1. ")
    assert list((tmp_path / "empty" / "runs" / "lessons" / "11_model_parallel").glob("*.png"))


@pytest.mark.thorough
@pytest.mark.parametrize("lesson", lessons(), ids=lambda lesson: lesson.number)
def test_every_notebook_runs_in_a_kernel_of_jupyter(lesson, tmp_path):
    runs_in_a_kernel(notebook.notebook(lesson.file), empty(tmp_path))


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("from minigrad_course import LESSONS", "import minigrad_course"),
        ("folders.append(f'str(LESSONS / \"{name}\")')", "pass"),
        ("sys.path[:0] = folders", "sys.path"),
        ("**settings), 0), *rest]", "**settings), 0), *rest[1:]]"),
    ],
)
def test_a_broken_notebook_is_seen(tmp_path, right, wrong):
    broken = mutant("minigrad_course.site.notebook", (right, wrong))
    with pytest.raises(AssertionError, match="(Error|NoMinigrad): "):
        runs_cell_by_cell(broken.notebook(CHEAP), empty(tmp_path))


def test_the_notebook_of_a_copy_uses_the_helper_files_of_the_copy(tmp_path, monkeypatch):
    copy = tmp_path / "course" / "11_model_parallel"
    copy.mkdir(parents=True)
    for file in CHEAP.parent.glob("*.py"):
        (copy / file.name).write_text(file.read_text(encoding="utf-8"), encoding="utf-8")
    (copy / "lesson.py").write_text(
        '"""Lesson 11. Mine."""\n# %%\nimport drawings\nprint(drawings.__file__)\n', encoding="utf-8"
    )
    monkeypatch.chdir(tmp_path / "course")
    lesson = Lesson.read(own_copy(CHEAP))
    write_lesson(lesson, None, tmp_path / "own.ipynb")
    printed = runs_cell_by_cell((tmp_path / "own.ipynb").read_text(encoding="utf-8"), empty(tmp_path))
    assert printed.strip() == str(copy / "drawings.py")


# Kernels that lack something


def says_in_one_line_what_a_kernel_lacks(module: ModuleType, *, old: bool) -> None:
    """A kernel without minigrad, or whose minigrad lacks the lesson, shows one line with a command."""
    code = "".join(json.loads(module.notebook(CHEAP))["cells"][1]["source"])
    course = ModuleType("minigrad_course")
    course.__dict__["LESSONS"] = Path("nowhere")
    lacks: Any = None
    with patch.dict(sys.modules, minigrad_course=course if old else None):
        try:
            exec(code, {"__name__": "__main__"})
        except ImportError as error:
            lacks = error
    assert lacks is not None, "the cell says nothing"
    (line,) = lacks._render_traceback_()
    assert "\n" not in line and line == str(lacks), f"it shows {line!r}"
    words = "%pip install --upgrade minigrad-course" if old else "%pip install minigrad-course"
    assert words in line and ("11_model_parallel" in line) == old, f"it says {line!r}"


@pytest.mark.parametrize("old", [False, True])
def test_a_kernel_says_what_it_lacks(old):
    says_in_one_line_what_a_kernel_lacks(notebook, old=old)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("except ImportError:", "except NameError:"),
        ("raise NoMinigrad({missing!r})", "raise ImportError({missing!r})"),
        ("return [str(self)]", "return [str(self), str(self)]"),
        ("raise NoMinigrad({old!r})", "raise NoMinigrad({missing!r})"),
        ("if not any(map(os.path.isdir, folders)):", "if False:"),
    ],
)
def test_a_kernel_that_does_not_say_what_it_lacks_is_seen(right, wrong):
    broken = mutant("minigrad_course.site.notebook", (right, wrong))
    with pytest.raises((AssertionError, AttributeError, ValueError)):
        for old in (False, True):
            says_in_one_line_what_a_kernel_lacks(broken, old=old)


# Links


def links_to_files_are_text(without_links: Callable[[str], str]) -> None:
    """Words of links to files stay; the web, headings, pictures and code do not change."""
    stays = "[the web](https://example.org/a), [a part](#part), ![a picture](a.png), `[x](y.py)`, f[0](1, 2)"
    assert without_links(stays) == stays
    prose = "([one.py](one.py) and [the *second*](../a/two.py), or [a9](../assignments/a9/README.md))."
    assert without_links(prose) == "(one.py and the *second*, or a9)."


def test_links_to_files_are_text():
    links_to_files_are_text(notebook.without_links)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (r"(`[^`]*`)|", "(~)|"),
        (r"(?!\w+:|#)", ""),
        ("(?<!!)", ""),
        ("match[1] or match[2]", "match[1] or match[0]"),
    ],
)
def test_links_that_change_more_or_less_are_seen(right, wrong):
    with pytest.raises(AssertionError):
        links_to_files_are_text(mutant("minigrad_course.site.notebook", (right, wrong)).without_links)


@pytest.mark.parametrize("lesson", lessons(), ids=lambda lesson: lesson.number)
def test_no_notebook_links_to_a_file(lesson):
    cells = json.loads(notebook.notebook(lesson.file))["cells"]
    prose = "".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    assert not re.findall(r"\[[^]]+\]\((?!https?:|#)[^()\s]+\)", re.sub("`[^`]*`", "", prose))


def empty(folder: Path) -> Path:
    (folder / "empty").mkdir()
    return folder / "empty"


# Pictures


def shows_each_picture_once(module: ModuleType, folder: Path) -> None:
    """The whole picture with its words, as IPython gets it; one that goes to memory is not shown."""
    shown = []

    def image(*, filename: str, alt: str, embed: bool) -> tuple[bytes, str]:
        assert embed, "a notebook that is sent on has no files beside it"
        return Path(filename).read_bytes(), alt

    display = SimpleNamespace(display=shown.append, Image=image)
    ipython = SimpleNamespace(get_ipython=lambda: "a shell", display=display)
    figure = Figure(figsize=(2, 2))
    figure.suptitle("A title")
    canvas = module.FigureCanvas(figure)
    with patch.dict(sys.modules, IPython=ipython):
        canvas.print_png(folder / "one.png")
        canvas.print_png(io.BytesIO())
    assert shown == [((folder / "one.png").read_bytes(), "A title.")]


def test_a_notebook_shows_the_pictures_that_a_cell_saves(tmp_path):
    shows_each_picture_once(figure_canvas, tmp_path)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("show_in_notebook(Path(filename_or_obj), text)", "pass"),
        ("if isinstance(filename_or_obj, str | Path):", "if True:"),
        ("embed=True", "embed=False"),
        ("alt=text", "alt=''"),
    ],
)
def test_a_picture_that_is_not_shown_is_seen(tmp_path, right, wrong):
    with pytest.raises((AssertionError, TypeError)):
        shows_each_picture_once(mutant("minigrad_course.shared.figure_canvas", (right, wrong)), tmp_path)
