"""A lesson's page: prose, code, what each cell printed and drew, and the questions with their answers."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from html import escape
from pathlib import Path, PurePosixPath

from ..lesson.lessons import Lesson
from ..lesson.questions import QUESTIONS, Question, questions_of
from ..shared.figure_canvas import description_in
from ..shared.svg_picture import SvgPicture
from .cells import Cell, only_draws, read_cells
from .markdown import Markdown, code
from .recording import Output, Recording
from .template import Link

OPENING = re.compile(r"^(?:The slide asks|You need|Time|After this you can): .+?(?:\n\n|\Z)", re.M | re.S)
PART = re.compile(r"^## (.+)$", re.MULTILINE)
PREDICTION = re.compile(r'(PREDICTION_\d+ = <span class="s)(?=">)')
SETUP, DRAWING = "Set-up: imports and settings", "Code of the drawing"
PLACES = {
    ("allreduce", "05"): "A ring all-reduce",
    ("pipeline", "13"): "Your own schedule|A schedule of your own",
    ("bytes", "03"): "VGG-16",
    ("bytes", "15"): "A trillion parameters",
    ("ring", "17"): "A ring of keys",
}
"""Patterns of the heading of the part in which a lesson's readers need an explorable, by both."""
OPTION = re.compile(r"^- ([a-z]): ((?:.+\n?(?!- [a-z]:))+)", re.MULTILINE)
FIGURES = "figures"


def body(lesson: Lesson, recording: Recording, markdown: Markdown, explorables: Sequence[Link] = ()) -> str:
    """The whole lesson; links to the two downloads that ``build`` puts beside the page.

    Each of the ``explorables``, which are links from this page, is named below the part that it belongs to.
    """
    first, *cells = read_cells(lesson.file.read_text(encoding="utf-8"))
    number = lesson.number
    heading, _, text = markdown.render(OPENING.sub("", first.text)).partition("</h1>")
    parts = [
        f'{heading.replace(f"Lesson {number}. ", "")}</h1>\n<p class="facts">Lesson {number} · '
        '<a href="lesson.py" download>lesson.py</a> · '
        f'<a href="lesson_{number}.ipynb" download>notebook</a> · '
        f"<code>minigrad lesson {number}</code></p>\n{opening(lesson, markdown)}{text}"
        '<p class="note">This page shows one run, made on '
        f"{escape(recording.machine)}. Seconds and speeds are those of that machine.</p>"
    ]
    outputs, part, is_setup = iter(recording.outputs), "", True
    places = [(link, part_of(link.url, lesson)) for link in explorables]
    parts += [play(link) for link, place in places if not place]
    for cell in cells:
        if cell.prose:
            headings = PART.findall(cell.text)
            part = [part, *headings][-1]
            parts += [prose(cell, markdown), *(play(link) for link, place in places if place in headings)]
        else:
            label = SETUP if is_setup else DRAWING if only_draws(cell.text) else ""
            source, is_setup = code(cell.text), False
            if label:
                source = f'<details class="fold"><summary>{label}</summary>\n{source}</details>\n'
            parts.append(source + output(next(outputs), recording, part))
    if recording.proofs:
        parts.append(questions(lesson.file.parent, recording.proofs, markdown))
    return "\n".join(parts)


def opening(lesson: Lesson, markdown: Markdown) -> str:
    """What the slide asks, what one must know, how long it takes, and what one can do after it."""
    time = f"about {lesson.minutes} minutes; the program runs for about {lesson.seconds} seconds"
    facts = {
        "The slide asks": lesson.question,
        "You need": lesson.needs,
        "Time": time if lesson.minutes else "",
        "After this you can": lesson.goal,
    }
    rows = "".join(f"<dt>{name}</dt><dd>{markdown.render(text)}</dd>" for name, text in facts.items() if text)
    return f'<dl class="opening">{rows}</dl>\n' if rows else ""


def part_of(explorable: str, lesson: Lesson) -> str:
    """The heading of the part in which readers of the lesson need the explorable, or ""."""
    words = PLACES.get((PurePosixPath(explorable).stem, lesson.number))
    cells = read_cells(lesson.file.read_text(encoding="utf-8"))
    parts = (part for cell in cells if cell.prose for part in PART.findall(cell.text))
    return next((part for part in parts if words and re.search(words, part)), "")


def play(link: Link) -> str:
    return f'<p class="play">Play with it: <a href="{link.url}">{escape(link.text)}</a></p>\n'


def prose(cell: Cell, markdown: Markdown) -> str:
    """Prose, in which a paragraph that begins with "Read:" is set apart."""
    return re.sub(r"<p>(?=Read: )", '<p class="read">', markdown.render(cell.text, lowest=2))


def output(cell: Output, recording: Recording, part: str = "") -> str:
    """What a cell printed, and its pictures; a line that repeats the heading of the ``part`` is left out."""
    lines = cell.printed.strip("\n").split("\n")
    number = re.match(r"\d+\. ", part)
    text = "\n".join(line for line in lines if not (line == part or number and line.startswith(number[0])))
    text = text.strip("\n")
    printed = f'<pre class="printed" tabindex="0"><samp>{escape(text)}</samp></pre>\n' if text else ""
    return printed + "".join(picture(recording.folder / path) for path in cell.pictures)


def picture(file: Path, href: str = "", src: str = "") -> str:
    """A picture, with the words that are in it as its alternative text; a link to it in full size."""
    width, height = size_of(file)
    source = src or f"{FIGURES}/{file.name}"
    return (
        f'<figure id="{file.stem}"><a href="{href or source}"><img src="{source}" width="{width}" '
        f'height="{height}" loading="lazy" alt="{escape(description_in(file))}"></a></figure>\n'
    )


def size_of(file: Path) -> tuple[int, int]:
    """The width and the height of a PNG or an SVG, in pixels."""
    if file.suffix == ".svg":
        return SvgPicture.read(file)[:2]
    return struct.unpack(">II", file.read_bytes()[16:24])


def questions(folder: Path, proofs: Sequence[str], markdown: Markdown) -> str:
    """Each question with its code, letters to choose from, and what the proof says."""
    cells = read_cells((folder / QUESTIONS).read_text(encoding="utf-8"))[1:]
    number = folder.name.partition("_")[0]
    parts = [
        '<h2 id="questions">Questions</h2>\n<p>Predict before you look. Then make the edit in '
        f"<code>questions.py</code>, and <code>minigrad lesson {number} --check</code> proves it.</p>"
    ]
    texts, programs = cells[::2], cells[1::2]
    answers = questions_of(folder)
    for i, (text, program, question, proof) in enumerate(
        zip(texts, programs, answers, proofs, strict=True), 1
    ):
        parts.append(one_question(f"question-{i}", text.text, program.text, question, proof, markdown))
    return "\n".join(parts)


def one_question(
    name: str, text: str, program: str, question: Question, proof: str, markdown: Markdown
) -> str:
    options = "".join(
        f'<label><input type="radio" name="{name}" value="{letter}"> {letter}: '
        f"{escape(' '.join(words.split()))}</label>"
        for letter, words in OPTION.findall(text)
    )
    source = code(program.partition('if __name__ == "__main__"')[0].strip() + "\n")
    program = PREDICTION.sub(r"\1 prediction", source)
    edit = "".join(lines("- ", old) + lines("+ ", new) for old, new in question.edits)
    return f"""<section class="question" data-answer="{question.prediction}">
{markdown.render(OPTION.sub("", text), lowest=3)}
{program}
<fieldset><legend>Your prediction</legend>{options}</fieldset>
<details><summary>Reveal the answer</summary>
<p><strong>{question.prediction}</strong>: {escape(proof)}.</p>
{code(edit, "diff")}</details>
</section>"""


def lines(mark: str, text: str) -> str:
    return "".join(f"{mark}{line}\n" for line in text.strip("\n").split("\n"))
