"""Bodies of the pages that gather: start, lessons, pictures, bugs, library, teaching, explorables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from ..lesson.lessons import Lesson
from ..lesson.questions import QUESTIONS
from .lesson_page import picture
from .markdown import Markdown, code
from .recording import Recording
from .template import Link, Page

Entries = Sequence[tuple[Link, str]]
"""Links, each with a sentence on what it leads to."""

FIRST = """pip install -e '.[mpi]'      # in the repository; without MPI: pip install -e .
minigrad prove --data 2      # the gradients of two ranks are those of one machine
minigrad lesson 01           # the first lesson, in this terminal
"""
PROOF = "minigrad prove --data 2 --pipe 2 --model 2 --net mlp --micro 4\n"


def start(doors: Sequence[tuple[Link, str]], explorables: Sequence[Link], schedule: str) -> str:
    """The promise, a schedule that fills, what to type first, and where to go; ``schedule`` is SVG."""
    cards = "".join(card(link, escape(text)) for link, text in doors)
    return f"""<section class="hero">
<div>
<h1>Train a network on many machines, and prove that it equals one.</h1>
<p class="lead">Lessons on data, model and pipeline parallelism. Each strategy is a short file to
read next to its lecture slide, and a law compares every gradient on every rank with the serial run.</p>
<p class="promise"><strong>Runs on a laptop, no GPU, no account.</strong></p>
</div>
<figure>{schedule}
<figcaption>A step of a pipeline, as the library's own timetable runs it: four ranks, six micro-batches.
<strong class="proved">PROVED: all ranks equal the serial run</strong></figcaption></figure>
</section>
<div class="cards doors">{cards}</div>
{code(FIRST, "bash")}{playground(explorables)}"""


def look(known: Sequence[Lesson], graded: int, explorables: Sequence[Link], proof: bytes) -> str:
    """What one wants to know before installing: what it is, a proof, what one needs, how long it takes."""
    size = re.search(rb'viewBox="0 0 ([\d.]+) ([\d.]+)"', proof)
    width, height = (round(float(number)) for number in size.groups()) if size else (0, 0)
    minutes = sum(lesson.minutes for lesson in known)
    first, page = known[0], f"lessons/{known[0].file.parent.name}/lesson.html"
    hours = f"<li>{len(known)} lessons take about {minutes / 60:.0f} hours.</li>" if minutes else ""
    once = f": about {first.minutes} minutes" if first.minutes else ""
    return f"""<h1>Before you install</h1>
<h2 id="what-it-is">What it is</h2>
<p>A course on training one network on several machines, and the library that it is about. A lesson is a
program to read next to its output: it states a claim, computes it, draws it and asserts it. From the messages
between ranks to pipelines and shared experts, each strategy is a file of Python that you can read.</p>
<h2 id="a-proof">What a proof looks like</h2>
<p>A training that computes wrong gradients can still gain accuracy. So this command compares the gradient
of every parameter on every one of eight ranks with the gradient that one machine computes:</p>
{code(PROOF, "bash")}
<figure><img src="assets/proof.svg" width="{width}" height="{height}"
 alt="minigrad prove: of each parameter the largest difference from the serial gradient; the last
 line says that all ranks equal the serial run"></figure>
<h2 id="what-you-need">What you need, and how long it takes</h2>
<ul><li>A laptop with Python 3.11 or newer: no GPU, no cluster, no account. MPI is optional.</li>
<li>Python with NumPy, and what a derivative and a matrix product are.</li>
<li>The first lesson, <a href="{page}">{escape(first.title)}</a>{once}.</li>
{hours}<li>{graded} assignments are graded by the laws that prove the library.</li></ul>
{playground(explorables)}<h2 id="then">Then install it</h2>
{code(FIRST, "bash")}"""


def playground(explorables: Sequence[Link]) -> str:
    items = "".join(f'<li><a href="{link.url}">{escape(link.text)}</a></li>' for link in explorables)
    return f'<h2 id="play">Play with it, without installing</h2>\n<ul>{items}</ul>\n' if items else ""


def guide(known: Iterable[Page]) -> str:
    """The pages of the user's guide, with their sections."""
    parts = ["<h1>Guide</h1>\n<p>How to install, run and extend minigrad, on a laptop and on a cluster.</p>"]
    for page in known:
        items = "".join(f'<li><a href="{link.url}">{escape(link.text)}</a></li>' for link in page.beside)
        parts.append(f'<h2><a href="{page.url}">{escape(page.title)}</a></h2>\n<ul>{items}</ul>')
    return "\n".join(parts)


def card(link: Link, text: str, image: str = "", data: str = "") -> str:
    """A box with a link; ``text`` and ``image`` are HTML, ``data`` its attributes for the script."""
    heading = f'<h2><a href="{link.url}">{escape(link.text)}</a></h2>'
    return f'<div class="card"{data}>{image}{heading}<p>{text}</p></div>'


def lessons(known: Iterable[Lesson], recordings: Mapping[str, Recording], rest: str) -> str:
    """A card for each lesson, and the text of the lessons' README."""
    cards = []
    for lesson in known:
        folder = lesson.file.parent.name
        drawn = [path for output in recordings[folder].outputs for path in output.pictures]
        image = ""
        if drawn:
            source = f"{folder}/figures/{Path(drawn[0]).name}"
            image = f'<img src="{source}" alt="" loading="lazy">'
        link = Link(f"{folder}/lesson.html", f"{lesson.number}. {lesson.title.partition(':')[0]}")
        time = f"<br>about {lesson.minutes} minutes" if lesson.minutes else ""
        text = lesson.file.read_text(encoding="utf-8")
        questions = lesson.file.with_name(QUESTIONS)
        count = questions.read_text(encoding="utf-8").count("\nPREDICTION_") if questions.is_file() else 0
        parts = len(re.findall("^# ## ", text, re.MULTILINE)) + bool(count)
        data = f' data-page="lessons/{link.url}" data-parts="{parts}" data-questions="{count}"'
        cards.append(card(link, escape(lesson.question or lesson.section) + time, image, data))
    return f'<h1>Lessons</h1>\n<div class="cards lessons">{"".join(cards)}</div>\n{rest}'


def assignments(texts: Iterable[tuple[Link, str]], rest: str) -> str:
    """A card for each assignment, and the text of their README."""
    cards = "".join(card(link, escape(number)) for link, number in texts)
    return f'<h1>Assignments</h1>\n<div class="cards">{cards}</div>\n{rest}'


def pictures(known: Iterable[Lesson], recordings: Mapping[str, Recording]) -> str:
    """All pictures, lesson by lesson; each leads to its place in the lesson."""
    parts = ["<h1>All pictures</h1>\n<p>Each leads to the cell that computed and drew it.</p>"]
    for lesson in known:
        folder = lesson.file.parent.name
        files = [recordings[folder].folder / path for o in recordings[folder].outputs for path in o.pictures]
        page = f"lessons/{folder}/lesson.html"
        shown = "".join(
            picture(file, f"{page}#{file.stem}", f"lessons/{folder}/figures/{file.name}").replace(
                f'id="{file.stem}"', f'id="{folder}-{file.stem}"'
            )
            for file in files
        )
        parts.append(
            f'<h2 id="lesson-{lesson.number}">'
            f'<a href="{page}">{lesson.number}. {escape(lesson.title)}</a></h2>\n'
            f'<div class="gallery">{shown}</div>'
        )
    return "\n".join(parts)


def bugs(part: str, known: Sequence[Mapping[str, Any]], markdown: Markdown) -> str:
    """Each seeded bug of a part: what became wrong, the law that caught it, and what the law said."""
    parts = [f"<h1>Seeded bugs: {escape(part)}</h1>\n<p>Predict what the law says, then open it.</p>"]
    for bug in known:
        top = "lessons/" if bug["where"].startswith("minigrad_course.") else ""
        page = markdown.resolve(f"/{top}{bug['where'].replace('.', '/')}.py")
        where = f'<a href="{page}">{bug["where"]}</a>' if page else bug["where"]
        law = bug["law"].replace("_", " ")
        page = markdown.resolve("/" + bug["file"])
        change = "".join(
            f"{mark} {line}\n"
            for mark, text in (("-", bug["right"]), ("+", bug["wrong"]))
            for line in text.split("\n")
        )
        parts.append(
            f'<section class="bug"><h2>{escape(bug["name"])}</h2>\n'
            f"<p>In {bug['definition']} of {where}</p>\n"
            f"{code(change, 'diff')}"
            f"<details><summary>Which law catches it, and what does it say?</summary><p>"
            f'{f"""<a href="{page}#{bug["law"]}">{law}</a>""" if page else law}</p>'
            f'<pre class="printed" tabindex="0"><samp>{escape(rounded(bug["words"]))}</samp></pre>'
            "</details></section>"
        )
    return "\n".join(parts)


def rounded(text: str, most: int = 400) -> str:
    """The beginning of what a law said, with four digits behind the point."""
    text = re.sub(r"(\.\d{4})\d+", r"\1", text)
    return text if len(text) <= most else f"{text[:most]} ..."


def library(names: Mapping[str, Entries]) -> str:
    """What users call, family by family, with a sentence on each."""
    opening = (
        '<h1>Library</h1>\n<p>What you call; <a href="modules.html">all modules</a> are listed apart.</p>'
    )
    return "\n".join([opening, *(table(family, entries, "name") for family, entries in names.items())])


def modules(packages: Mapping[str, Entries]) -> str:
    """All modules, package by package, with a sentence on each."""
    opening = "<h1>All modules</h1>\n<p>Imports go one way: lessons, backends, minigrad.</p>"
    return "\n".join([opening, *(table(package, files, "module") for package, files in packages.items())])


def table(title: str, entries: Entries, head: str) -> str:
    rows = "".join(
        f'<tr><td><a href="{link.url}">{link.text}</a></td><td>{escape(text)}</td></tr>'
        for link, text in entries
    )
    return (
        f'<h2 id="{title}">{title}</h2>\n<div class="wide" tabindex="0"><table><thead><tr>'
        f"<th>{head}</th><th>what it is</th></tr></thead><tbody>{rows}</tbody></table></div>"
    )


def listing(title: str, entries: Iterable[tuple[Link, str]], opening: str = "") -> str:
    """A page that is a list of links, with a sentence on each."""
    items = "".join(
        f'<li><a href="{link.url}">{escape(link.text)}</a> {escape(text)}</li>' for link, text in entries
    )
    return f"<h1>{escape(title)}</h1>\n{opening}<ul>{items}</ul>"
