"""One message between the judge and a player: two texts of JSON, and raw bytes. Nothing in it is executed."""

from __future__ import annotations

import json
import struct
from typing import Any, BinaryIO

MOST = 64 * 2**20  # bytes of each of the three
SIZES = struct.Struct(">III")


class Malformed(ValueError):
    """What came is no message, or not one that may come now."""


class Closed(EOFError):
    """The other side has ended."""


def as_text(value: Any) -> bytes:
    """The value as JSON; raises ValueError where it is larger than the other side takes."""
    return bounded(json.dumps(value, separators=(",", ":"), check_circular=False).encode())


def bounded(data: bytes) -> bytes:
    if len(data) > MOST:
        raise ValueError(f"{len(data)} bytes are too many to hand over at once, the most is {MOST}")
    return data


def pack(header: Any, body: bytes, content: bytes = b"") -> bytes:
    """The message of a header, a body that is JSON, and bytes."""
    text = as_text(header)
    return b"".join([SIZES.pack(len(text), len(body), len(content)), text, body, content])


def read(stream: BinaryIO) -> tuple[Any, Any, bytes]:
    """The next message's header, body and content; raises Malformed, or Closed at the stream's end."""
    sizes = SIZES.unpack(exactly(stream, SIZES.size))
    if max(sizes) > MOST:
        raise Malformed(f"a message of {max(sizes)} bytes")
    header, body, content = (exactly(stream, size) for size in sizes)
    try:
        return json.loads(header), json.loads(body), content
    except (ValueError, RecursionError) as error:
        raise Malformed(f"a text that is no JSON: {error}") from None


def exactly(stream: BinaryIO, count: int) -> bytes:
    """``count`` bytes, which a stream may bring in pieces."""
    found = stream.read(count) if count else b""
    if len(found) < count:
        raise Closed("the stream has ended")
    return found
