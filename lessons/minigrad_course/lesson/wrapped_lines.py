"""The output of a lesson on a terminal that is narrower than its lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from textwrap import wrap


def wrapped(chunks: Iterable[bytes], width: int) -> Iterator[bytes]:
    """The chunks with every line that is wider than ``width`` cut between words, the rest of it indented.

    A line is passed on when it is complete.
    """
    line = b""
    for chunk in chunks:
        *lines, line = (line + chunk).split(b"\n")
        yield from (wrapped_line(whole, width) + b"\n" for whole in lines)
    yield wrapped_line(line, width)


def wrapped_line(line: bytes, width: int) -> bytes:
    text = line.decode(errors="surrogateescape")
    if len(text) <= width:
        return line
    indent = " " * min(len(text) - len(text.lstrip()) + 2, width // 2)
    parts = wrap(
        text,
        width,
        subsequent_indent=indent,
        expand_tabs=False,
        replace_whitespace=False,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(parts).encode(errors="surrogateescape")
