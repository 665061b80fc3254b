"""What a page names and what it holds, read from its HTML."""

from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

FIRST_SCREEN = 150_000
"""The most bytes that a browser may need before it shows a page."""


class Elements(HTMLParser):
    """The ids of a page, its links, the sources and texts of its pictures, and the files loaded at once."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.files: list[str] = []
        self.pictures: list[tuple[str, str | None]] = []
        self.at_once: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = {name: value or "" for name, value in attrs}
        self.ids += [values["id"]] if "id" in values else []
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag in ("link", "script", "img"):
            named = [values[name] for name in ("src", "href") if name in values]
            self.files += named
            self.at_once += named if values.get("loading") != "lazy" else []
        if tag == "img":
            self.pictures.append((values.get("src", ""), values.get("alt")))


@cache
def elements(file: Path, changed: float) -> Elements:
    return Elements(file.read_text(encoding="utf-8"))


def faults(file: Path, root: Path) -> list[str]:
    """Dead links and anchors, missing files, foreign files, ids that stand twice, pictures without words."""
    page = elements(file, file.stat().st_mtime)
    words = [f"id {name} stands twice" for name in {n for n in page.ids if page.ids.count(n) > 1}]
    words += [f"picture {source} has no alt" for source, text in page.pictures if text is None]
    words += [f"foreign file {link}" for link in page.files if urlsplit(link).scheme not in ("", "data")]
    for link in [*page.links, *page.files]:
        parts = urlsplit(link)
        if parts.scheme:
            continue
        target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
        if not target.is_relative_to(root) or not target.is_file():
            words.append(f"dead link {link}")
        elif parts.fragment and unquote(parts.fragment) not in elements(target, target.stat().st_mtime).ids:
            words.append(f"dead anchor {link}")
    return words


def first_screen(file: Path) -> int:
    """Bytes that a browser needs before it shows a page: the page, its style, its script, eager pictures."""
    page = elements(file, file.stat().st_mtime)
    needed = {(file.parent / unquote(urlsplit(link).path)).resolve() for link in page.at_once}
    return file.stat().st_size + sum(one.stat().st_size for one in needed if one.is_file())
