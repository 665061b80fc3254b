"""Exceptions that cross between the judge and a player: names, words, and the line of the program."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from typing import Any

from .frame import Malformed

MOST_CAUSES = 8
LONGEST = 4000  # characters
PLAIN = (BaseException, Exception, BaseExceptionGroup, ExceptionGroup)
BUILT_IN: Mapping[str, type[BaseException]] = {
    name: kind
    for name, kind in vars(builtins).items()
    if isinstance(kind, type) and issubclass(kind, BaseException) and kind not in PLAIN
}


class Raised:
    """An exception of the other side; its class has the other's name, and is derived as far as built in.

    ``line`` is the innermost line of the submission's file that it passed through; ``origin`` the number of
    the exception that this side raised first, where it is that one which comes back.
    """

    def __init__(self, text: str, line: int | None, code: Any = None, origin: int | None = None):
        self.text, self.line, self.origin = text, line, origin
        if isinstance(self, SystemExit):
            self.code = code
        if isinstance(self, SyntaxError):
            self.msg = text

    def __str__(self) -> str:
        return self.text


def describe(error: BaseException, file: str, most: int = MOST_CAUSES) -> list[Any]:
    """The exception and its causes, at most so many, the outermost first, as values that can be sent."""
    found: list[Any] = []
    at: BaseException | None = error
    while at is not None and len(found) < most:
        direct = at.__cause__ is not None
        names = [kind.__name__ for kind in type(at).__mro__[:20]]
        code = at.code if isinstance(at, SystemExit) and isinstance(at.code, int | str) else None
        origin = at.origin if isinstance(at, Raised) else None
        found.append([names, words(at), line_in(at, file), code, origin, direct])
        at = at.__cause__ if direct or at.__suppress_context__ else at.__context__
    return found


def rebuild(described: Any) -> list[Any]:
    """What ``describe`` described, each linked to the next; raises Malformed."""
    errors: list[Any] = []
    if type(described) is not list or not 0 < len(described) <= MOST_CAUSES:
        raise Malformed("no exceptions")
    for names, text, line, code, origin, _ in described:
        if not all(type(name) is str for name in names) or type(text) is not str or not names:
            raise Malformed("an exception without a name")
        if any(n is not None and type(n) is not int for n in (line, origin)):
            raise Malformed("a line that is no number")
        base = next((BUILT_IN[name] for name in names if name in BUILT_IN), Exception)
        name = names[0] if names[0].isidentifier() else "Exception"
        made: Any = type(name[:100], (Raised, base), {})
        errors.append(made(text[:LONGEST], line, code, origin))
    for (*_, direct), error, cause in zip(described, errors, errors[1:], strict=False):
        if direct:
            error.__cause__ = cause
        else:
            error.__context__ = cause
    return errors


def chain(error: BaseException) -> list[BaseException]:
    """The error and its causes."""
    causes = [error]
    while (cause := causes[-1].__cause__) is not None and not any(cause is seen for seen in causes):
        causes.append(cause)
    return causes


def words(error: BaseException) -> str:
    """Its text, whatever a class of the submission's makes of it."""
    try:
        text = error.msg if isinstance(error, SyntaxError) else str(error)
        return text[:LONGEST] if type(text) is str else ""
    except Exception:
        return ""


def line_in(error: BaseException, file: str) -> int | None:
    """The innermost line of ``file`` that the error passed through."""
    if isinstance(error, Raised):
        return error.line
    if isinstance(error, SyntaxError) and error.filename == file:
        return error.lineno
    line, at = None, error.__traceback__
    while at is not None:
        line = at.tb_lineno if at.tb_frame.f_code.co_filename == file else line
        at = at.tb_next
    return line


def within(error: BaseException) -> bool:
    """Whether a call raised it from within what was called, and not because it could not be called so."""
    if isinstance(error, Raised):
        return error.line is not None
    return error.__traceback__ is not None and error.__traceback__.tb_next is not None
