"""Laws of lessons/minigrad_course/site/build.py, command.py, lesson_page.py, markdown.py, module_page.py,
notebook.py, pages.py, public_names.py, schedule_picture.py, single_page.py, template.py and
lessons/minigrad_course/handout/repository.py: a page of a small course holds what it should, the same bytes
twice, and nothing that is private.
"""

import ast
import json
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path, PurePosixPath

import pytest
from minigrad_course.lesson.lessons import Lesson, lessons
from minigrad_course.site import lesson_page, markdown, module_page, schedule_picture
from minigrad_course.site.build import build
from minigrad_course.site.cells import read_cells
from minigrad_course.site.notebook import notebook
from minigrad_course.site.recording import Recording
from minigrad_course.site.single_page import single_page
from minigrad_course.site.template import Link, render

from backends.entry import main
from tests.bugs.mutant import mutant
from tests.minigrad_course.site.links import FIRST_SCREEN, faults, first_screen
from tests.minigrad_course.site.notebook_runs import runs_cell_by_cell
from tests.minigrad_course.site.small_course import LAYER, LESSON, explorables, write_course
from tests.minigrad_course.site.source_course import gathered

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


def five(course: Path) -> Lesson:
    """The first lesson under the number of the one to which the explorable belongs."""
    return replace(Lesson.read(course / "lessons" / "01_first" / "lesson.py"), number="05")


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
    play = [Link("allreduce.html", "The player")]
    page = module.body(lesson, recording, markdown.Markdown(lambda path: None), play)
    order = [
        "First: one number",
        "<dt>The slide asks</dt><dd><p>what is <code>one</code> number?",
        "about 15 minutes; the program runs for about 5 seconds",
        "name a number",
        "See minigrad/one.py",
        f"<summary>{module.SETUP}</summary>",
        "start_lesson",
        "</details>",
        "<samp>first 1",
        "A picture: A ring all-reduce",
        'Play with it: <a href="allreduce.html">',
        "urandom",
        "<samp>second &lt;b&gt;",
        f"<summary>{module.DRAWING}</summary>",
        "plt.subplots",
        "</details>",
        "figures/line.png",
        "figures/bare.png",
    ]
    order += [
        "doi.org/10.1016/j.jpdc.2008.09.002",
        "Questions",
        'PREDICTION_1 = ""',
        'value="b"',
        "<details>",
        "twice 2 is 4",
        "return 2 * x",
    ]
    text, place = re.sub(r"</?span[^>]*>", "", page), 0
    for words in order:
        place = text.find(words, place)
        assert place >= 0, f"{words} is not there, or not in its place"
    assert "<p>The slide asks: " not in text, "the opening is there twice"
    assert "<samp>1. A picture, in short" not in text, "an output repeats the heading of its part"
    assert text.count("<summary>") == 3 and '<span class="s prediction">""</span>' in page
    words = dict(PICTURE.findall(page))
    assert words["figures/line.png"] == "A line that rises. height over steps."
    assert words["figures/bare.png"] == "Made without pyplot."
    assert "b: four, as a sum" in page and "machine" in page


def test_a_lesson_has_its_parts(course, recording):
    has_its_parts(lesson_page, five(course), recording)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("parts.append(source + output(", "parts.append(output("),
        ("SETUP if is_setup else DRAWING if only_draws(cell.text)", "DRAWING if only_draws(cell.text)"),
        ("DRAWING if only_draws(cell.text)", "DRAWING if cell.text"),
        ("or number and line.startswith(number[0])", ""),
        ('OPENING.sub("", first.text)', "first.text"),
        ("if place in headings", "if not place"),
        ('"After this you can": lesson.goal', '"After this you can": ""'),
        ('PREDICTION.sub(r"\\1 prediction", source)', "source"),
        ("next(outputs)", "recording.outputs[0]"),
        ("escape(description_in(file))", '""'),
        ("if recording.proofs:", "if not recording.proofs:"),
        ("escape(text)", "text"),
    ],
)
def test_a_broken_lesson_page_is_seen(course, recording, right, wrong):
    broken = mutant("minigrad_course.site.lesson_page", (right, wrong))
    with pytest.raises((AssertionError, ValueError)):
        has_its_parts(broken, five(course), recording)


def test_the_picture_of_a_proof_keeps_its_shape(site):
    assert 'viewBox="0 0 60 20"' in (site / "assets" / "proof.svg").read_text(encoding="utf-8")
    assert 'width="60" height="20"' in (site / "look.html").read_text(encoding="utf-8")


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
    assert "A ring all-reduce</a></p>\n<h1>The player" in player
    index = (site / "assets" / "search.js").read_text(encoding="utf-8").partition(" = ")[2].rstrip(";\n")
    assert any(
        url == "minigrad/one.html#square" and "square of" in text for url, _, _, text, *_ in json.loads(index)
    )


def test_an_explorable_leads_back_to_its_part(site):
    page = (site / "explorables" / "allreduce.html").read_text(encoding="utf-8")
    place = "../lessons/05_second/lesson.html#1-a-picture-a-ring-all-reduce"
    assert f'<a href="{place}">lesson 05: A picture: A ring all-reduce</a>' in page


def test_every_explorable_has_a_part_in_the_lessons():
    """The words that name the part are in one heading of the real lesson."""
    known = {one.number: one for one in lessons()}
    for (name, number), words in lesson_page.PLACES.items():
        part = lesson_page.part_of(f"explorables/{name}.html", known[number])
        assert part, f"no heading of lesson {number} has the words {words!r}: where does {name}.html belong?"


def shows_what_users_call_first(module):
    """What a package exports, with the settings that a base class takes; then the helpers."""
    classes = {node.name: node for node in ast.parse(LAYER).body if isinstance(node, ast.ClassDef)}
    empty = markdown.Markdown(lambda path: None)
    page = module.body(PurePosixPath("minigrad/nn/layer.py"), LAYER, empty, ["Layer"], classes)
    names = re.findall(r'<(?:h2|h3) id="([^"]+)">', page)
    assert names == ["Layer", "helpers-of-this-module", "sized", "Base"]
    assert "\nLayer(n_in: int, *, bias: bool=True)\n" in re.sub(r"</?span[^>]*>", "", page)
    links = module.contents(LAYER, "layer.html", ["Layer"])
    assert [link.text for link in links] == ["Layer", "Helpers of this module"]


def test_what_users_call_comes_before_helpers(site):
    shows_what_users_call_first(module_page)
    library = (site / "library.html").read_text(encoding="utf-8")
    assert "nn/layer.html#Layer" in library and "sized" not in library and "one.html" not in library
    assert 'href="minigrad/one.html"' in (site / "modules.html").read_text(encoding="utf-8")
    assert "Helpers of" in (site / "minigrad" / "nn" / "layer.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("if first and others else known", "if first and not others else known"),
        ("arguments.args[1:]", "arguments.args"),
        ('return next((call for call in calls if call), "")', 'return ""'),
        (".replace(base.name, node.name, 1)", ""),
        ("(node is None or not public or name in public)", "(node is None or name)"),
    ],
)
def test_a_broken_page_of_a_module_is_seen(right, wrong):
    with pytest.raises(AssertionError):
        shows_what_users_call_first(mutant("minigrad_course.site.module_page", (right, wrong)))


def test_the_guide_lists_its_sections(site):
    guide = (site / "guide.html").read_text(encoding="utf-8")
    assert re.findall(r'href="README.html#(\w+)"', guide) == ["install", "run", "ask", "end"]
    assert 'class="beside"' in (site / "README.html").read_text(encoding="utf-8")


def is_the_timetable(module, ranks, micros):
    """Of 1F1B each rank draws all forwards and backwards once, in order, in the time of the closed form."""
    boxes = re.findall(
        r'<g class="([FB])" style="--start: (\d+)"><rect x="(\d+)" y="(\d+)" width="(\d+)".*?'
        r">([FB])(\d+)</text>",
        module.schedule_picture("1f1b", ranks, micros),
    )
    rows = sorted({int(y) for *_, y, _, _, _ in boxes})
    assert len(rows) == ranks and len(boxes) == 2 * ranks * micros
    ends = []
    for y in rows:
        mine = [box for box in boxes if int(box[3]) == y]
        for kind, length in (("F", 1), ("B", 2)):
            passes = [box for box in mine if box[0] == kind]
            assert [int(box[6]) for box in passes] == list(range(micros))
            assert all(round((int(box[4]) + 1) / module.UNIT) == length and box[5] == kind for box in passes)
        starts = [int(box[2]) for box in mine]
        assert starts == sorted(starts) and all(int(box[2]) == module.UNIT * int(box[1]) for box in mine)
        assert all(
            start + int(box[4]) < after
            for start, box, after in zip(starts, mine, [*starts[1:], 9e9], strict=True)
        )
        ends.append(starts[-1] + int(mine[-1][4]) + 1)
    assert max(ends) == module.UNIT * 3 * (micros + ranks - 1), "1F1B takes (m + p - 1) (f + b)"


@pytest.mark.parametrize(("ranks", "micros"), [(4, 6), (1, 1), (3, 2)])
def test_the_moving_picture_is_the_timetable(ranks, micros):
    is_the_timetable(schedule_picture, ranks, micros)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("event.rank * (ROW + GAP)", "0 * (ROW + GAP)"),
        ("UNIT * event.start, ", "UNIT * event.stop, "),
        ("Costs(forward=1, backward=2)", "Costs(forward=2, backward=2)"),
        ("event.instruction.micros[0]", "event.rank"),
    ],
)
def test_a_wrong_picture_is_seen(right, wrong):
    with pytest.raises(AssertionError):
        is_the_timetable(mutant("minigrad_course.site.schedule_picture", (right, wrong)), 4, 6)


def test_the_first_screen_is_small(site, tmp_path):
    large = {page.name: first_screen(page) for page in site.rglob("*.html") if first_screen(page) > 60_000}
    assert not large
    (tmp_path / "large.png").write_bytes(bytes(FIRST_SCREEN))
    for loading, is_small in (("lazy", True), ("eager", False)):
        page = tmp_path / f"{loading}.html"
        page.write_text(f'<img src="large.png" alt="" loading="{loading}">', encoding="utf-8")
        assert (first_screen(page) < FIRST_SCREEN) == is_small, loading


@pytest.mark.thorough
def test_the_first_screens_of_the_course_are_small(site, tmp_path):
    """Of all pages that can be made without running the lessons; a picture of a lesson is lazy."""
    course = gathered()
    for url, page in course.pages.items():
        (tmp_path / url).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / url).write_text(render(page, course.navigation()), encoding="utf-8")
    shutil.copytree(site / "assets", tmp_path / "assets")
    (tmp_path / "assets" / "proof.svg").write_bytes(course.files["assets/proof.svg"])
    sizes = {url: first_screen(tmp_path / url) for url in course.pages}
    assert {url: size for url, size in sizes.items() if size > FIRST_SCREEN} == {}


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
    assert [cell.prose for cell in cells] == [True, False, True, False, False, True]
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
