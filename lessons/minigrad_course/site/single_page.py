"""One lesson as one HTML file, which needs no other file: ``minigrad lesson 06 --html FILE``."""

from __future__ import annotations

import base64
import re
import tempfile
from html import escape
from pathlib import Path

from ..lesson.lessons import Lesson
from . import lesson_page
from .build import ASSETS
from .markdown import Markdown
from .recording import Recording


def single_page(lesson: Lesson) -> str:
    """Run the lesson; its page with style and pictures inside. Raises RuntimeError if the lesson fails."""
    with tempfile.TemporaryDirectory() as folder:
        recording = Recording.load(lesson.file, Path(folder))
        body = lesson_page.body(lesson, recording, Markdown(lambda path: None))
        pictures = {Path(path).name: path for output in recording.outputs for path in output.pictures}

        def inside(match: re.Match[str]) -> str:
            content = (recording.folder / pictures[match[1]]).read_bytes()
            kind = "svg+xml" if match[1].endswith(".svg") else "png"
            return f'src="data:image/{kind};base64,{base64.b64encode(content).decode()}"'

        body = re.sub(rf'<a href="{lesson_page.FIGURES}/[^"]+">(<img .*?>)</a>', r"\1", body)
        body = re.sub(rf'src="{lesson_page.FIGURES}/([^"]+)"', inside, body)
    body = re.sub(r'<a href="[^"]+" download>[^<]+</a> · ', "", body)
    style = (ASSETS / "style.css").read_text(encoding="utf-8")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(lesson.title)}</title>
<style>
{style}
</style>
</head>
<body>
<div class="columns single">
<main id="main-text">
{body}
</main>
</div>
</body>
</html>
"""
