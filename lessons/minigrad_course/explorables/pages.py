"""The explorables: pages in which a reader changes something and sees what follows.

Each is one HTML file that needs no server and no network: ``pages`` puts the style, the modules and the data,
which Python computes, into a frame of ``frames``. The modules are joined, because a script that imports other
files does not load from file://; ``tests/minigrad_course/explorables`` imports them one by one under Node.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

from .allreduce_record import allreduce_data
from .byte_table import byte_data
from .ring_table import ring_data, ring_texts
from .schedule_tables import workshop_data, workshop_texts

FOLDER = Path(__file__).parent
IMPORT = re.compile(r'^import \{[^}]*\} from "\./([\w.]+)";\n', re.MULTILINE)
EXPORT = re.compile(r"^export (?=const|function|class)", re.MULTILINE)


def pages() -> dict[str, str]:
    """The text of each page, by the name of its file."""
    return {f"{name}.html": page(name, data(), texts()) for name, (data, texts) in CONTENTS.items()}


def page(name: str, data: dict[str, Any], texts: dict[str, str]) -> str:
    """The frame of this name with the style, the data, its script, and ``texts`` for {{their names}}."""
    parts = {
        "style": (FOLDER / "explorable.css").read_text(encoding="utf-8"),
        "data": json.dumps(data, separators=(",", ":"), ensure_ascii=False).replace("</", "<\\/"),
        "script": text_of(f"{name}.mjs"),
        **{key: escape(text) for key, text in texts.items()},
    }
    frame = (FOLDER / "frames" / f"{name}.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], frame)


def text_of(name: str) -> str:
    """A module and all that it imports as one, each file once, before those that import it."""
    texts: dict[str, str] = {}

    def add(name: str) -> None:
        text = (FOLDER / name).read_text(encoding="utf-8")
        for imported in IMPORT.findall(text):
            if imported not in texts:
                add(imported)
        texts[name] = EXPORT.sub("", IMPORT.sub("", text))

    add(name)
    return "\n".join(texts.values())


CONTENTS: dict[str, tuple[Callable[[], dict[str, Any]], Callable[[], dict[str, str]]]] = {
    "pipeline": (workshop_data, workshop_texts),
    "allreduce": (allreduce_data, dict),
    "bytes": (byte_data, dict),
    "ring": (ring_data, ring_texts),
}
"""The data and the texts of each page."""
