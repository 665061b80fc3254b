"""What all pages share: head, navigation, search, and the way to the pages before and after."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

THEME = 'try { document.documentElement.dataset.theme = localStorage.getItem("theme") ?? ""; } catch {}'
"""Sets the colors that were chosen before anything is drawn; a browser may refuse storage to a file."""


class Link(NamedTuple):
    """A ``url`` from the site's root, and the words that lead there."""

    url: str
    text: str


class Page(NamedTuple):
    """A page at ``url``; ``beside`` is a list next to its body; the search finds its text by ``weight``.

    A page of weight 0 is not searched.
    """

    url: str
    title: str
    body: str
    area: str = ""
    beside: Sequence[Link] = ()
    previous: Link | None = None
    following: Link | None = None
    weight: float = 1.0


def relative(url: str, page: str) -> str:
    """The way from the page at one URL to another; both begin at the site's root."""
    path, mark, part = url.partition("#")
    return posixpath.relpath(path, posixpath.dirname(page) or ".") + mark + part


def links(links: Sequence[Link], page: str, here: str = "") -> str:
    """A list of links; the one to ``here`` is marked as the current one."""
    items = []
    for link in links:
        current = ' aria-current="page"' if link.url == here else ""
        items.append(f'<li><a href="{relative(link.url, page)}"{current}>{escape(link.text)}</a></li>')
    return f"<ul>{''.join(items)}</ul>"


def render(page: Page, navigation: Sequence[Link]) -> str:
    """The whole page, as HTML."""
    up = relative(".", page.url) + "/"
    beside = below = ""
    if page.beside:
        inside = links(page.beside, page.url, page.url)
        beside = (
            f'<nav class="beside" aria-label="sections">{inside}</nav>'
            f'<details class="contents"><summary>Contents</summary><nav aria-label="contents">{inside}</nav>'
            "</details>"
        )
    neighbors = (("prev", "Previous", page.previous), ("next", "Next", page.following))
    if any(link for *_, link in neighbors):
        turns = (
            f'<a rel="{rel}" href="{relative(link.url, page.url)}"><small>{word}</small> '
            f"{escape(link.text)}</a>"
            for rel, word, link in neighbors
            if link
        )
        below = f'<nav class="turn" aria-label="previous and next">{"".join(turns)}</nav>'
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(page.title)} · minigrad</title>
<script>{THEME}</script>
<link rel="icon" href="{up}assets/icon.svg">
<link rel="stylesheet" href="{up}assets/style.css">
<script src="{up}assets/site.js" data-root="{up}" defer></script>
</head>
<body data-page="{page.url}">
<a class="skip" href="#main-text">Skip to the text</a>
<header>
<a class="home" href="{up}index.html">mini<b>grad</b></a>
<nav aria-label="main">{links(navigation, page.url, page.area)}</nav>
<div class="tools">
<div class="search" hidden><input type="search" placeholder="Search  /" aria-label="search the course"
 autocomplete="off"><div class="results" aria-live="polite"></div></div>
<button class="theme" type="button" hidden>Dark</button>
</div>
</header>
<div class="{"columns" if beside else "column"}">
{beside}
<main id="main-text" tabindex="-1">
{page.body}
{below}
</main>
</div>
<footer>minigrad: parallel training, proved. Code under MIT; handwritten digits MNIST, CC BY-SA 3.0.</footer>
</body>
</html>
"""
