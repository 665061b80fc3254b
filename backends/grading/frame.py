"""One message between the judge and a player: a text of JSON, and raw bytes. Nothing in it is executed."""

from __future__ import annotations

import json
import struct
from typing import Any, BinaryIO, TypeVar

MOST = 64 * 2**20  # bytes of a text, and of what follows it
SIZES = struct.Struct(">II")
ENCODER = json.JSONEncoder(separators=(",", ":"), check_circular=False)
Data = TypeVar("Data", str, bytes)


class Malformed(ValueError):
    """What came is no message, or not one that may come now."""


class Closed(EOFError):
    """The other side has ended."""


def as_text(value: Any) -> str:
    """The value as JSON; raises ValueError where it is larger than the other side takes."""
    return bounded(ENCODER.encode(value))


def bounded(data: Data) -> Data:
    if len(data) > MOST:
        raise ValueError(f"{len(data)} bytes are too many to hand over at once, the most is {MOST}")
    return data


def pack(header: Any, body: str, content: bytes = b"") -> bytes:
    """The message of a header, a body that is JSON already, and bytes."""
    text = f"[{ENCODER.encode(header)},{body}]".encode()
    return b"".join([SIZES.pack(len(text), len(content)), text, content])


def read(stream: BinaryIO) -> tuple[Any, Any, bytes]:
    """The next message's header, body and content; raises Malformed, or Closed at the stream's end."""
    sizes = SIZES.unpack(exactly(stream, SIZES.size))
    if max(sizes) > 2 * MOST:
        raise Malformed(f"a message of {max(sizes)} bytes")
    text, content = (exactly(stream, size) for size in sizes)
    try:
        header, body = json.loads(text.decode("ascii"))
    except (TypeError, ValueError, RecursionError) as error:
        raise Malformed(f"a text that is no message: {error}"[:200]) from None
    return header, body, content


def exactly(stream: BinaryIO, count: int) -> bytes:
    """``count`` bytes, which a stream may bring in pieces."""
    try:
        found = stream.read(count) if count else b""
    except OSError as error:
        raise Closed(str(error)) from None
    if len(found) < count:
        raise Closed("the stream has ended")
    return found
