"""Prose and code as HTML. Links between files of the tree become links between their pages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from html import escape

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

Resolve = Callable[[str], str | None]
"""The URL of the page for a path that a text names; None where there is no such page."""

FOREIGN = re.compile(r"[a-z]+:")
SOURCES = re.compile(r"\bdoi:(?P<doi>10\.\S+?)(?=[.,;)]?(?:\s|$))|\barXiv:(?P<arxiv>\d{4}\.\d{4,5})")
STRING = re.compile(r'class="s[12ade]"')
UNSTYLED = re.compile(
    r'<span class="(?!(?:[ck]\w?|ow|s[12ade]?|m[fhib]|n[cdf]|fm|g[di])")\w+">([^<]*)</span>'
)
LESSON = re.compile(r"(?<=Lesson: )\d\d_\w+")
PATHS = re.compile(r"(?<![\w/])(?:minigrad|backends|lessons|tests|benchmarks)/[\w/.]*\w")


def code(text: str, language: str = "python") -> str:
    """A highlighted block of code; only what ``style.css`` colors has marks of HTML."""
    try:
        lexer = get_lexer_by_name(language)
    except ClassNotFound:
        lexer = get_lexer_by_name("text")
    inside = UNSTYLED.sub(r"\1", highlight(text, lexer, HtmlFormatter(nowrap=True)))
    inside = STRING.sub('class="s"', inside).replace('</span><span class="s">', "")
    return f'<pre class="code" tabindex="0"><code>{inside}</code></pre>\n'


def anchor(text: str, known: set[str] | frozenset[str] = frozenset()) -> str:
    """The id of a heading: its words, with a number where another heading has the same ones."""
    base = re.sub(r"[^\w]+", "-", text.lower()).strip("-_") or "section"
    return next(name for name in (base, *(f"{base}-{i}" for i in range(2, 10_000))) if name not in known)


class Markdown:
    """Renders the Markdown of one page: ``resolve`` finds the page for a path; ``known`` are the ids."""

    def __init__(self, resolve: Resolve) -> None:
        self.resolve = resolve
        self.known = {"main-text"}  # the template has it
        self.parser = MarkdownIt("commonmark", {"html": False}).enable("table")

    def render(self, text: str, *, lowest: int = 1) -> str:
        """HTML; headings have ids, and none is above level ``lowest``."""
        tokens = self.parser.parse(text)
        for token, content in zip(tokens, [*tokens[1:], None], strict=False):
            if token.type in ("heading_open", "heading_close"):
                token.tag = f"h{max(lowest, int(token.tag[1]))}"
            if token.type == "heading_open" and content is not None:
                name = anchor(plain(content), self.known)
                self.known.add(name)
                token.attrSet("id", name)
            if token.children is not None:
                token.children = list(self.inline(token.children))
        return "".join(self.blocks(tokens))

    def blocks(self, tokens: list[Token]) -> Iterator[str]:
        """The HTML of block tokens: code is highlighted, and wide tables can be scrolled by themselves."""
        renderer = RendererHTML()
        for i, token in enumerate(tokens):
            if token.type in ("fence", "code_block"):
                yield code(token.content, token.info.partition(" ")[0] or "text")
            elif token.type == "table_open":
                yield '<div class="wide" tabindex="0"><table>\n'
            elif token.type == "table_close":
                yield "</table></div>\n"
            elif token.type == "inline":
                yield renderer.renderInline(token.children or [], self.parser.options, {})
            else:
                yield renderer.renderToken(tokens, i, self.parser.options, {})

    def inline(self, tokens: list[Token]) -> Iterator[Token]:
        """Links and pictures go to the site's pages, and sources and paths in the text become links."""
        inside = dead = False
        for token in tokens:
            if token.type == "link_open":
                href = str(token.attrGet("href"))
                if not href.startswith("#") and not FOREIGN.match(href):
                    path, _, part = href.partition("#")
                    url = self.resolve(path)
                    dead = url is None
                    token.attrSet("href", f"{url}#{part}" if part else f"{url}")
                inside = True
            if token.type == "image":
                token.attrSet("src", self.resolve(str(token.attrGet("src"))) or "")
            shown = not (dead and token.type in ("link_open", "link_close"))
            if token.type == "link_close":
                inside = dead = False
            if not shown:
                continue
            if token.type == "text" and not inside:
                yield html(self.with_links(token.content))
            elif token.type == "code_inline" and not inside and (url := self.page(token.content)):
                yield html(f'<a href="{url}"><code>{escape(token.content)}</code></a>')
            else:
                yield token

    def with_links(self, text: str) -> str:
        """The escaped text, in which identifiers of articles and paths of files are links."""

        def source(match: re.Match[str]) -> str:
            host = f"doi.org/{match['doi']}" if match["doi"] else f"arxiv.org/abs/{match['arxiv']}"
            return f'<a href="https://{host}">{match[0]}</a>'

        def path(match: re.Match[str]) -> str:
            url = self.page(match[0])
            return f'<a href="{url}">{match[0]}</a>' if url else match[0]

        text = LESSON.sub(r"lessons/\g<0>", escape(text, quote=False))
        return PATHS.sub(path, SOURCES.sub(source, text))

    def page(self, path: str) -> str | None:
        return self.resolve("/" + path) if PATHS.fullmatch(path) else None


def html(text: str) -> Token:
    return Token("html_inline", "", 0, content=text)


def plain(token: Token) -> str:
    """The words of a heading, without marks."""
    return "".join(child.content for child in token.children or [])
