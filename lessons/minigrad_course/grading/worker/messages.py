"""Messages between the judge and a worker: a JSON text and raw bytes. Nothing in a message is executed.

Exceptions are sent as values: the names of their classes, their texts, and the submission's line.
"""

from __future__ import annotations

import builtins
import json
import struct
from collections.abc import Mapping
from typing import Any, BinaryIO, TypeVar

MAX_BYTES = 64 * 2**20  # of a message's text, and of its raw bytes
MAX_CAUSES = 8  # of an exception
MAX_TEXT = 4000  # characters of an exception's text
SIZES = struct.Struct(">II")
ENCODER = json.JSONEncoder(separators=(",", ":"), check_circular=False)
Data = TypeVar("Data", str, bytes)


class MalformedMessage(ValueError):
    """The bytes are not a message, or the message is not allowed at this point."""


class ChannelClosed(EOFError):
    """The other side has ended."""


def to_json(value: Any) -> str:
    """The value as JSON; raises ValueError where it is too large for a message."""
    return check_size(ENCODER.encode(value))


def check_size(data: Data) -> Data:
    if len(data) > MAX_BYTES:
        raise ValueError(f"{len(data)} bytes are too many to hand over at once, the most is {MAX_BYTES}")
    return data


def pack(header: Any, body: str, content: bytes = b"") -> bytes:
    """The message made of a header, a body that is JSON already, and raw bytes."""
    text = f"[{ENCODER.encode(header)},{body}]".encode()
    return b"".join([SIZES.pack(len(text), len(content)), text, content])


def read(stream: BinaryIO) -> tuple[Any, Any, bytes]:
    """The next message's header, body and raw bytes; raises MalformedMessage or ChannelClosed."""
    sizes = SIZES.unpack(read_exactly(stream, SIZES.size))
    if max(sizes) > 2 * MAX_BYTES:
        raise MalformedMessage(f"a message of {max(sizes)} bytes")
    text, content = (read_exactly(stream, size) for size in sizes)
    try:
        header, body = json.loads(text.decode("ascii"))
    except (TypeError, ValueError, RecursionError) as error:
        raise MalformedMessage(f"a text that is no message: {error}"[:200]) from None
    return header, body, content


def read_exactly(stream: BinaryIO, count: int) -> bytes:
    try:
        data = stream.read(count) if count else b""
    except OSError as error:
        raise ChannelClosed(str(error)) from None
    if len(data) < count:
        raise ChannelClosed("the stream has ended")
    return data


# Exceptions

GENERIC = (BaseException, Exception, BaseExceptionGroup, ExceptionGroup)
# Where one of these comes through a check, a loop of the check would end as if it were done
END_LOOPS = (StopIteration, StopAsyncIteration, GeneratorExit)
BUILTIN_EXCEPTIONS: Mapping[str, type[BaseException]] = {
    name: kind
    for name, kind in vars(builtins).items()
    if isinstance(kind, type) and issubclass(kind, BaseException) and kind not in (*GENERIC, *END_LOOPS)
}


class RemoteError:
    """An exception of the other side; its class has the other's name and the nearest built-in base.

    ``line`` is the innermost line of the submission's file that the exception passed through. If this side
    raised the exception first, ``origin`` is its number here.
    """

    def __init__(self, text: str, line: int | None, code: Any = None, origin: int | None = None):
        self.text, self.line, self.origin = text, line, origin
        if isinstance(self, SystemExit):
            self.code = code
        if isinstance(self, SyntaxError):
            self.msg = text

    def __str__(self) -> str:
        return self.text


def encode_error(error: BaseException, file: str) -> list[Any]:
    """The exception and at most MAX_CAUSES - 1 of its causes, outermost first, as values that can be sent."""
    encoded: list[Any] = []
    at: BaseException | None = error
    while at is not None and len(encoded) < MAX_CAUSES:
        direct = at.__cause__ is not None
        names = [kind.__name__ for kind in type(at).__mro__[:20]]
        code = at.code if isinstance(at, SystemExit) and isinstance(at.code, int | str) else None
        origin = at.origin if isinstance(at, RemoteError) else None
        encoded.append([names, text_of(at), line_in(at, file), code, origin, direct])
        at = at.__cause__ if direct or at.__suppress_context__ else at.__context__
    return encoded


def decode_errors(encoded: Any) -> list[Any]:
    """The exceptions that ``encode_error`` encoded, each linked to its cause; raises MalformedMessage."""
    errors: list[Any] = []
    if type(encoded) is not list or not 0 < len(encoded) <= MAX_CAUSES:
        raise MalformedMessage("no exceptions")
    for names, text, line, code, origin, _ in encoded:
        if not all(type(name) is str for name in names) or type(text) is not str or not names:
            raise MalformedMessage("an exception without a name")
        if any(n is not None and type(n) is not int for n in (line, origin)):
            raise MalformedMessage("a line that is no number")
        base = next((BUILTIN_EXCEPTIONS[name] for name in names if name in BUILTIN_EXCEPTIONS), Exception)
        name = names[0] if names[0].isidentifier() else "Exception"
        error_class: Any = type(name[:100], (RemoteError, base), {})
        errors.append(error_class(text[:MAX_TEXT], line, code, origin))
    for (*_, direct), error, cause in zip(encoded, errors, errors[1:], strict=False):
        if direct:
            error.__cause__ = cause
        else:
            error.__context__ = cause
    return errors


def causes_of(error: BaseException) -> list[BaseException]:
    """The error, its cause, the cause of that, and so on."""
    causes = [error]
    while (cause := causes[-1].__cause__) is not None and not any(cause is other for other in causes):
        causes.append(cause)
    return causes


def text_of(error: BaseException) -> str:
    """The exception's text; empty where the submission's class fails to return one."""
    try:
        text = error.msg if isinstance(error, SyntaxError) else str(error)
        return text[:MAX_TEXT] if type(text) is str else ""
    except Exception:
        return ""


def line_in(error: BaseException, file: str) -> int | None:
    """The innermost line of ``file`` that the error passed through."""
    if isinstance(error, RemoteError):
        return error.line
    if isinstance(error, SyntaxError) and error.filename == file:
        return error.lineno
    line, at = None, error.__traceback__
    while at is not None:
        line = at.tb_lineno if at.tb_frame.f_code.co_filename == file else line
        at = at.tb_next
    return line


def raised_inside(error: BaseException) -> bool:
    """Whether a called function raised the error itself; a call with wrong arguments fails before that."""
    if isinstance(error, RemoteError):
        return error.line is not None
    return error.__traceback__ is not None and error.__traceback__.tb_next is not None
