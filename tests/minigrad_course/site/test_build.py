"""Laws of lessons/minigrad_course/site/build.py, command.py, lesson_page.py, markdown.py, module_page.py,
notebook.py, pages.py, single_page.py, template.py and lessons/minigrad_course/handout/repository.py: a page
of a small course holds what it should, the same bytes twice, and nothing that is private.
"""

import json
import re
import sys
from pathlib import Path

import pytest
from minigrad_course.lesson.lessons import Lesson
from minigrad_course.site import lesson_page, markdown
from minigrad_course.site.build import build
from minigrad_course.site.cells import read_cells
from minigrad_course.site.notebook import notebook
from minigrad_course.site.recording import Recording
from minigrad_course.site.single_page import single_page

from backends.entry import main
from tests.bugs.mutant import mutant
from tests.minigrad_course.site.links import faults
from tests.minigrad_course.site.notebook_runs import runs_cell_by_cell
from tests.minigrad_course.site.small_course import LESSON, explorables, write_course

PICTURE = re.compile(r'<img src="([^"]+)"[^>]* alt="([^"]*)"')


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    return write_course(tmp_path_factory.mktemp("course").resolve())


@pytest.fixture(scope="module")
def site(course):
    build(course / "site", course / "records", lambda step: None, course, explorables)
    return course / "site"


@pytest.fixture(scope="module")
def recording(course, site):
    return Recording.load(course / "lessons" / "01_first" / "lesson.py", course / "records")


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def test_a_site_that_is_built_again_has_the_same_bytes(course, site):
    """Although each lesson prints random numbers: its run is recorded."""
    build(course / "again", course / "records", lambda step: None, course, explorables)
    assert contents(course / "again") == contents(site)
    build(course / "again", course / "new records", lambda step: None, course, explorables)
    differing = {
        name for name, content in contents(course / "again").items() if content != contents(site)[name]
    }
    assert "lessons/01_first/lesson.html" in differing, (
        "the numbers are not random: the law above says nothing"
    )


def test_every_link_leads_to_a_page_and_every_picture_has_words(site):
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 10
    assert {
        page.relative_to(site).as_posix(): faults(page, site) for page in pages if faults(page, site)
    } == {}


def has_its_parts(module, lesson, recording):
    """Each cell's output follows its code; pictures describe themselves; the question hides its answer."""
    page = module.body(lesson, recording, markdown.Markdown(lambda path: None))
    order = [
        "start_lesson",
        "<samp>first 1",
        "A picture",
        "urandom",
        "<samp>second &lt;b&gt;",
        "figures/line.png",
        "figures/bare.png",
    ]
    order += [
        "doi.org/10.1016/j.jpdc.2008.09.002",
        "Questions",
        'value="b"',
        "<details>",
        "twice 2 is 4",
        "return 2 * x",
    ]
    text = re.sub(r"</?span[^>]*>", "", page)
    places = [text.index(words) for words in order]
    assert places == sorted(places), dict(zip(order, places, strict=True))
    words = dict(PICTURE.findall(page))
    assert words["figures/line.png"] == "A line that rises. height over steps."
    assert words["figures/bare.png"] == "Made without pyplot."
    assert "b: four, as a sum" in page and "machine" in page


def test_a_lesson_has_its_parts(course, recording):
    has_its_parts(lesson_page, course / "lessons" / "01_first" / "lesson.py", recording)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("code(cell.text) + output(", "output("),
        ("next(outputs)", "recording.outputs[0]"),
        ("escape(description_in(file))", '""'),
        ("if recording.proofs:", "if not recording.proofs:"),
        ("escape(text)", "text"),
    ],
)
def test_a_broken_lesson_page_is_seen(course, recording, right, wrong):
    broken = mutant("minigrad_course.site.lesson_page", (right, wrong))
    with pytest.raises((AssertionError, ValueError)):
        has_its_parts(broken, course / "lessons" / "01_first" / "lesson.py", recording)


def test_the_picture_of_the_start_keeps_its_shape(site):
    assert 'viewBox="0 0 60 20"' in (site / "assets" / "proof.svg").read_text(encoding="utf-8")
    assert 'width="60" height="20"' in (site / "index.html").read_text(encoding="utf-8")


def test_nothing_private_is_shown(site):
    """Answers only behind the questions, and no link to a file that is not part of the site."""
    names = [path.relative_to(site).as_posix() for path in site.rglob("*")]
    assert not [name for name in names if "answers" in name or "instructor" in name or "outside" in name]
    page = (site / "lessons" / "index.html").read_text(encoding="utf-8")
    assert "its answers" in page and "answers.html" not in page and "nothing.html" not in page


def test_pages_of_files_that_are_named(site):
    module = (site / "minigrad" / "one.html").read_text(encoding="utf-8")
    assert "rank 0 | 4.0\n" in re.sub(r"</?span[^>]*>", "", module), "an example keeps its lines"
    assert "times" in module and "The square of" in module and "Source of minigrad/one.py" in module
    assert (site / "tests" / "test_one.html").is_file(), "a law that a text names"
    assert "Week one" in (site / "lessons" / "teaching" / "syllabus.html").read_text(encoding="utf-8")
    assert "../../explorables/allreduce.html" in (site / "lessons" / "05_second" / "lesson.html").read_text(
        encoding="utf-8"
    )
    player = (site / "explorables" / "allreduce.html").read_text(encoding="utf-8")
    assert '<a href="../lessons/05_second/lesson.html">lesson 05</a></p>\n<h1>The player' in player
    index = (site / "assets" / "search.js").read_text(encoding="utf-8").partition(" = ")[2].rstrip(";\n")
    assert any(
        url == "minigrad/one.html#square" and "square of" in text for url, *_, text in json.loads(index)
    )


def test_a_lesson_runs_again_only_when_its_sources_change(course, recording, tmp_path):
    lesson = tmp_path / "01_first" / "lesson.py"
    lesson.parent.mkdir()
    (lesson.parent / "helper.py").write_text("NUMBER = 1\n", encoding="utf-8")
    lesson.write_text(
        (course / "lessons" / "01_first" / "lesson.py").read_text(encoding="utf-8"), encoding="utf-8"
    )
    records = tmp_path / "records"
    first = Recording.load(lesson, records)
    assert Recording.load(lesson, records) == first
    (lesson.parent / "helper.py").write_text("NUMBER = 22\n", encoding="utf-8")
    assert "first 22" in Recording.load(lesson, records).outputs[0].printed
    lesson.write_text("# %%\nraise ValueError('the reason')\n", encoding="utf-8")
    with pytest.raises(RuntimeError, match="the reason; run it with"):
        Recording.load(lesson, records)


def test_a_folder_with_other_files_is_refused(course, tmp_path):
    (tmp_path / "mine.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(ValueError, match="holds no site"):
        build(tmp_path, course / "records", lambda step: None, course, explorables)
    assert (tmp_path / "mine.txt").read_text(encoding="utf-8") == "mine"


def test_a_notebook_has_the_cells_of_the_lesson_and_runs(course, tmp_path):
    file = course / "lessons" / "01_first" / "lesson.py"
    text = notebook(file, file.parent)
    whole = json.loads(text)
    assert (whole["nbformat"], whole["nbformat_minor"]) == (4, 5)
    opening, helpers, *rest = whole["cells"]
    assert opening["source"][0] == "# Lesson 01. First: one number\n" and opening["cell_type"] == "markdown"
    assert len({cell["id"] for cell in whole["cells"]}) == len(whole["cells"])
    cells = ["".join(cell["source"]) for cell in whole["cells"] if cell["cell_type"] == "code"]
    assert cells[1:] == [
        cell.text.rstrip() for cell in read_cells(file.read_text(encoding="utf-8")) if not cell.prose
    ]
    (tmp_path / "empty").mkdir()
    runs_cell_by_cell(text, tmp_path / "empty")
    assert (tmp_path / "empty" / "runs" / "lessons" / "01_first" / "line.png").is_file()


def test_one_page_holds_its_pictures(course):
    page = single_page(Lesson.read(course / "lessons" / "01_first" / "lesson.py"))
    assert page.count('src="data:image/png;base64,') == 2 and "figures/" not in page
    assert "href" not in page.replace('href="https://doi.org', "").replace('href="#', "")


def test_cells_are_those_of_the_file():
    text = LESSON.format(number="01", title="T", folder="f", long="w")
    cells = read_cells(text)
    assert [cell.prose for cell in cells] == [True, False, True, False, True]
    lines = text.splitlines()
    for cell in cells[1:]:
        first = cell.text.splitlines()[0]
        assert lines[cell.line - 1] == (f"# {first}" if cell.prose else first)


@pytest.mark.parametrize("arguments", [["bild"], ["build", "OTHER"], ["build", "a", "b"]])
def test_wrong_use_ends_in_one_line(tmp_path, monkeypatch, capsys, arguments):
    (tmp_path / "OTHER").mkdir()
    (tmp_path / "OTHER" / "mine").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["minigrad", "site", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code and len(capsys.readouterr().err.splitlines()) == 1
