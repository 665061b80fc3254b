"""The course's own prose as one text, from which a transformer learns: ``minigrad/datasets/course.txt.gz``.

    python -m minigrad_course.site.course_text FILE

It writes the prose of today. The file in the package is frozen, with its SHA-256 in ``minigrad/text.py``: it
is not written again when lessons change, or all figures of trainings would change with them.
"""

from __future__ import annotations

import gzip
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from unicodedata import normalize

from .cells import read_cells

LESSONS = Path(__file__).parents[2]
ASCII = str.maketrans({"–": "-", "—": "-", "−": "-", "×": "x", "·": "*", "≤": "<=", "≥": ">=", "→": "->"})
CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
TAG = re.compile(r"<!--.*?-->|</?[a-zA-Z][^<>]*>", re.DOTALL)
HEADING = re.compile(r"^(#+ .*)$", re.MULTILINE)
ITEM = r"[-*] |\d+\. "  # a line of a list begins so


def course_text(lessons: Path = LESSONS) -> bytes:
    """All paragraphs of Markdown files, then of lessons, in ASCII and with a blank line between two."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(lessons.rglob("*.md"))]
    texts += [prose(path.read_text(encoding="utf-8")) for path in sorted(lessons.glob("*/lesson.py"))]
    return ("\n\n".join(paragraph for text in texts for paragraph in paragraphs(text)) + "\n").encode("ascii")


def prose(lesson: str) -> str:
    """The Markdown in the source of a lesson."""
    return "\n\n".join(cell.text for cell in read_cells(lesson) if cell.prose)


def paragraphs(markdown: str) -> Iterator[str]:
    """The paragraphs, each in one line, and each point of a list in one.

    Code, tables, targets of links and marks of HTML are left out.
    """
    prose = LINK.sub(r"\1", TAG.sub("", CODE.sub("", markdown))).translate(ASCII)
    prose = HEADING.sub(r"\1\n", prose)
    for block in re.split(r"\n\s*\n", normalize("NFKD", prose).encode("ascii", "ignore").decode()):
        lines = [line for line in block.splitlines() if not line.startswith(("    ", "|"))]
        text = re.sub(rf"\n(?!{ITEM})", " ", "\n".join(line.strip() for line in lines))
        if text.strip():
            yield re.sub(" +", " ", text.strip())


def main() -> None:
    """Write the gzipped text to the file that the command line names; equal texts are equal bytes."""
    Path(sys.argv[1]).write_bytes(gzip.compress(course_text(), mtime=0))


if __name__ == "__main__":
    main()
