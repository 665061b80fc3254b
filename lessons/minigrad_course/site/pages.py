"""Bodies of the pages that gather: start, lessons, pictures, bugs, library, teaching, explorables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any

from ..lesson.lessons import Lesson
from .lesson_page import picture
from .markdown import Markdown, code
from .recording import Recording
from .template import Link

FIRST = """pip install -e '.[mpi]'      # in the repository; without MPI: pip install -e .
minigrad prove --data 2      # the gradients of two ranks are those of one machine
minigrad lesson 01           # the first lesson, in this terminal
"""


def start(doors: Sequence[tuple[Link, str]], explorables: Sequence[Link], proof: bytes) -> str:
    """The promise, what to type first, and where to go; ``proof`` is the SVG of assets/proof.svg."""
    size = re.search(rb'viewBox="0 0 ([\d.]+) ([\d.]+)"', proof)
    width, height = (round(float(number)) for number in size.groups()) if size else (0, 0)
    cards = "".join(card(link, escape(text)) for link, text in doors)
    items = "".join(f'<li><a href="{link.url}">{escape(link.text)}</a></li>' for link in explorables)
    play = f"<h2>Play with it</h2>\n<ul>{items}</ul>" if items else ""
    return f"""<section class="hero">
<div>
<h1>Train a network on many machines, and prove that it equals one.</h1>
<p class="lead">Nineteen lessons on data, model and pipeline parallelism. Each strategy is a short file to
read beside its lecture slide, and a law compares every gradient on every rank with the serial run.</p>
<p class="promise"><strong>Runs on a laptop, no GPU, no account.</strong></p>
</div>
<div>
<figure><img src="assets/proof.svg" width="{width}" height="{height}"
 alt="minigrad prove: of each parameter the largest difference from the serial gradient; the last
 line says that all ranks equal the serial run"></figure>
{code(FIRST, "bash")}
</div>
</section>
<div class="cards doors">{cards}</div>
{play}"""


def card(link: Link, text: str, image: str = "") -> str:
    """A box with a link; ``text`` and ``image`` are HTML."""
    return (
        f'<div class="card">{image}<h2><a href="{link.url}">{escape(link.text)}</a></h2><p>{text}</p></div>'
    )


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
        cards.append(card(link, escape(lesson.section), image))
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


def bugs(known: Sequence[Mapping[str, Any]], markdown: Markdown) -> str:
    """Each seeded bug: what became wrong, the law that caught it, and what that said."""
    parts = [
        "<h1>Seeded bugs</h1>\n<p>A law that no bug can break proves nothing. So each of these "
        f"{len(known)} bugs is put into the library, one at a time, and the law beside it must fail. "
        "Predict what the law says, then open it.</p>"
    ]
    for part, of_part in groupby(known, lambda bug: bug["part"]):
        parts.append(f'<h2 id="{part.replace(" ", "-").replace(",", "")}">{escape(part.capitalize())}</h2>')
        for bug in of_part:
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
                f'<section class="bug"><h3>{escape(bug["name"])}</h3>\n'
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


def library(modules: Mapping[str, Sequence[tuple[Link, str]]]) -> str:
    """All modules, package by package, with the first sentence of each."""
    parts = ["<h1>Library</h1>\n<p>Imports go one way: lessons, backends, minigrad.</p>"]
    for package, files in modules.items():
        rows = "".join(
            f'<tr><td><a href="{link.url}">{link.text}</a></td><td>{escape(text)}</td></tr>'
            for link, text in files
        )
        parts.append(
            f'<h2 id="{package}">{package}</h2>\n<div class="wide" tabindex="0"><table><thead><tr>'
            f"<th>module</th><th>what it is</th></tr></thead><tbody>{rows}</tbody></table></div>"
        )
    return "\n".join(parts)


def listing(title: str, entries: Iterable[tuple[Link, str]], opening: str = "") -> str:
    """A page that is a list of links, with a sentence on each."""
    items = "".join(
        f'<li><a href="{link.url}">{escape(link.text)}</a> {escape(text)}</li>' for link, text in entries
    )
    return f"<h1>{escape(title)}</h1>\n{opening}<ul>{items}</ul>"
