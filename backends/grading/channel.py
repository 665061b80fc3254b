"""The line between the judge and the program of one rank: calls in both directions, one inside the other.

One side at a time has the floor. It asks, and answers what the other asks, until its own answer comes.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any

from . import raised
from .frame import Closed, Malformed, as_text, pack, read
from .memory import Memory
from .references import References
from .values import Values


class Channel:
    """One end of the line; what the two kinds of ends do differently are the methods at the bottom."""

    def __init__(self, line: socket.socket, first: int, records: Mapping[str, type[Any]]):
        self.line, self.stream = line, line.makefile("rb")
        self.memory, self.references = Memory(first), References(self)
        self.values = Values(self.memory, self.references, self.kind, records)

    def request(self, what: str, *parts: Any) -> Any:
        """Ask the other side; its answer, or the exception that it raised."""
        self.send("ask", self.body((what, *parts)))
        while True:
            kind, body, line = self.receive()
            if kind == "return":
                return body
            if kind == "raise":
                raise self.rebuilt(body)
            self.serve(body, line)

    def serve(self, asked: Any, line: int | None) -> None:
        """Do what is asked, and send what came of it."""
        try:
            if type(asked) is not tuple or not asked or type(asked[0]) is not str:
                raise Malformed("no question")
            kind, body = "return", self.body(self.answer(line, *asked))
            self.send(kind, body)
        except BaseException as error:
            if self.broken(error):
                raise
            self.send("raise", self.body(self.described(error)))

    def body(self, value: Any) -> str:
        return as_text(self.values.encode(value))

    def send(self, kind: str, body: str) -> None:
        sync, content = self.memory.outgoing()
        message = pack([kind, sync, self.references.returned(), self.place()], body, content)
        try:
            self.line.sendall(message)
        except OSError as error:
            raise Closed(str(error)) from None

    def receive(self) -> tuple[str, Any, int | None]:
        """The next message's kind and what it carries; raises Malformed or Closed."""
        header, body, content = read(self.stream)
        try:
            kind, sync, gone, line = header
            self.memory.incoming(sync, content)
            value = self.values.decode(body)
            self.references.forget(gone)
        except Malformed:
            raise
        except Exception as error:
            raise Malformed(f"a message that is none: {type(error).__name__}: {error}"[:200]) from None
        finally:
            self.memory.release()
        if kind not in ("ask", "return", "raise") or (line is not None and type(line) is not int):
            raise Malformed("a message of no kind")
        return kind, value, line

    # What differs

    def broken(self, error: BaseException) -> bool:
        """Whether the error is that of the line itself, so that nothing more can be said."""
        return isinstance(error, Malformed | Closed)

    def kind(self, x: Any) -> str:
        """As what kind of reference the object may cross; raises TypeError where it may not."""
        raise NotImplementedError

    def answer(self, line: int | None, what: str, *parts: Any) -> Any:
        """What the other side asked for, which it did at that line of its program."""
        raise NotImplementedError

    def described(self, error: BaseException) -> Any:
        raise NotImplementedError

    def rebuilt(self, described: Any) -> BaseException:
        return raised.rebuild(described)[0]

    def place(self) -> int | None:
        """The line of the submission that asks; the judge has none."""
        return None


__all__ = ["Channel", "Closed", "Malformed"]
