"""A lesson's page: prose, code, what each cell printed and drew, and the questions with their answers."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from html import escape
from pathlib import Path

from ..lesson.questions import QUESTIONS, Question, questions_of
from ..shared.figure_canvas import description_in
from ..shared.svg_picture import SvgPicture
from .cells import Cell, read_cells
from .markdown import Markdown, code
from .recording import Output, Recording

OPTION = re.compile(r"^- ([a-z]): ((?:.+\n?(?!- [a-z]:))+)", re.MULTILINE)
FIGURES = "figures"


def body(lesson: Path, recording: Recording, markdown: Markdown) -> str:
    """The whole lesson; links to the two downloads that ``build`` puts beside the page."""
    opening, *cells = read_cells(lesson.read_text(encoding="utf-8"))
    number = lesson.parent.name.partition("_")[0]
    heading, _, text = markdown.render(opening.text).partition("</h1>")
    parts = [
        f'{heading.replace(f"Lesson {number}. ", "")}</h1>\n<p class="facts">Lesson {number} · '
        '<a href="lesson.py" download>lesson.py</a> · '
        f'<a href="lesson_{number}.ipynb" download>notebook</a> · '
        f"<code>minigrad lesson {number}</code></p>\n{text}"
        '<p class="note">This page shows one run, made on '
        f"{escape(recording.machine)}. Seconds and speeds are those of that machine.</p>"
    ]
    outputs = iter(recording.outputs)
    for cell in cells:
        parts.append(
            prose(cell, markdown) if cell.prose else code(cell.text) + output(next(outputs), recording)
        )
    if recording.proofs:
        parts.append(questions(lesson.parent, recording.proofs, markdown))
    return "\n".join(parts)


def prose(cell: Cell, markdown: Markdown) -> str:
    """Prose, in which a paragraph that begins with "Read:" is set apart."""
    return re.sub(r"<p>(?=Read: )", '<p class="read">', markdown.render(cell.text, lowest=2))


def output(cell: Output, recording: Recording) -> str:
    """What a cell printed, and its pictures."""
    text = cell.printed.strip("\n")
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
    program = program.partition('if __name__ == "__main__"')[0].strip() + "\n"
    edit = "".join(lines("- ", old) + lines("+ ", new) for old, new in question.edits)
    return f"""<section class="question" data-answer="{question.prediction}">
{markdown.render(OPTION.sub("", text), lowest=3)}
{code(program)}
<fieldset><legend>Your prediction</legend>{options}</fieldset>
<details><summary>Reveal the answer</summary>
<p><strong>{question.prediction}</strong>: {escape(proof)}.</p>
{code(edit, "diff")}</details>
</section>"""


def lines(mark: str, text: str) -> str:
    return "".join(f"{mark}{line}\n" for line in text.strip("\n").split("\n"))
