"""Text as rows of symbols: the course's own prose inside the package, or any file in UTF-8.

A symbol is a byte, so that no table of words or syllables is needed. Lecture section: back-propagation.
Lesson: 17_sequences.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .data import Batch, Dataset
from .mnist import from_package

COURSE = Path(__file__).with_name("datasets") / "course.txt.gz"
COURSE_SHA256 = "e4bc697100a27103aab2d2d8c4b277fbe9d576716b8e94d11d7e543403328778"  # of the text
COURSE_BYTES = 222_236
PADDING = -1  # the label of what stands after the end of a text


@dataclass(frozen=True, repr=False)
class Text(Dataset):
    """The first nine tenths of a text to learn from, the rest to test on, and its ``symbols`` in order.

    A sample is a row of symbols by number, int64 (length,), and its targets are the symbols that follow each
    of them. The last row of a part ends with symbols 0, whose targets are PADDING.
    """

    symbols: bytes = b""
    sha256: str = ""  # of the whole text


def text(length: int = 64, file: Path | None = None, symbols: bytes | None = None) -> Text:
    """The course's own prose, or a ``file`` in UTF-8, in rows of ``length`` symbols.

    ``symbols`` are those of a model, by default the bytes that occur in the text, sorted. Raises OSError
    where the file cannot be read; ValueError where it is no UTF-8 or too short for a row to learn from and a
    pair to test on, and for bytes that are not among ``symbols``.
    """
    if length < 1:
        raise ValueError(f"--length must be a number of symbols of at least 1, got {length}")
    content = course() if file is None else read(file)
    name = "the course's prose" if file is None else str(file)
    least = max(11, -(-10 * (length + 1) // 9))
    if len(content) < least:
        raise ValueError(
            f"{name} has {len(content)} symbols, and rows of {length} need a text of at least {least}; take "
            "a longer one, or a smaller --length"
        )
    symbols = bytes(sorted(set(content))) if symbols is None else symbols
    numbers, cut = numbers_of(content, symbols, name), len(content) * 9 // 10
    train, test = rows(numbers[:cut], length), rows(numbers[cut:], length)
    counts = pairs(train, len(symbols))
    references = {
        "entropy of letters": letters_loss(counts),
        "test loss of a table of pairs": pairs_loss(counts, test),
    }
    return Text("text", train, test, references, symbols, hashlib.sha256(content).hexdigest())


def course() -> bytes:
    """The prose of the lessons and of the texts around them, as it was when this file was made."""
    return from_package(COURSE, COURSE_SHA256, COURSE_BYTES)


def read(file: Path) -> bytes:
    """The bytes of a text; raises OSError without a file, and ValueError, with the place, for no UTF-8."""
    try:
        content = file.read_bytes()
    except OSError as error:
        reason = "no such file" if isinstance(error, FileNotFoundError) else error.strerror
        reason = "it is a folder" if file.is_dir() else reason
        raise type(error)(f"--text {file}: {reason}; pass a file that holds a text in UTF-8") from None
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{file} is no text in UTF-8: byte {error.start} is {content[error.start]:#04x}; convert it"
        ) from None
    return content


def numbers_of(content: bytes, symbols: bytes, name: str) -> np.ndarray:
    """The place of each byte among ``symbols``, int64; ValueError, with its place, for another byte."""
    table = np.full(256, PADDING)
    table[np.frombuffer(symbols, np.uint8)] = np.arange(len(symbols))
    numbers = table[np.frombuffer(content, np.uint8)]
    if len(others := np.flatnonzero(numbers == PADDING)):
        place = int(others[0])
        raise ValueError(
            f"{name} has {content[place : place + 1]!r} at place {place}, which is none of the model's "
            f"{len(symbols)} symbols; leave it out, or train on a text that has it"
        )
    return numbers


def rows(numbers: np.ndarray, length: int) -> Batch:
    """Rows of ``length`` symbols, and for each symbol the one after it as its target."""
    n = -(-(len(numbers) - 1) // length)
    x, y = np.zeros(n * length, np.int64), np.full(n * length, PADDING)
    x[: len(numbers) - 1], y[: len(numbers) - 1] = numbers[:-1], numbers[1:]
    return Batch(x.reshape(n, length), y.reshape(n, length))


def pairs(data: Batch, symbols: int) -> np.ndarray:
    """How often each symbol (a row) is followed by each (a column)."""
    counts = np.zeros((symbols, symbols), np.int64)
    counted = data.y != PADDING
    np.add.at(counts, (data.x[counted], data.y[counted]), 1)
    return counts


def letters_loss(counts: np.ndarray) -> float:
    """The entropy of single symbols, by the counts of pairs: the loss where each symbol's share is known."""
    shares = counts.sum(axis=0) / counts.sum()
    shares = shares[shares > 0]
    return 0.0 - float((shares * np.log(shares)).sum())  # of one symbol 0, not -0


def pairs_loss(counts: np.ndarray, data: Batch) -> float:
    """The loss on ``data`` of a table: how often each symbol followed the one before, by ``counts``.

    Each pair counts once more than it occurs, so that a new one is unlikely, not impossible (Laplace).
    """
    chances = (counts + 1.0) / (counts + 1.0).sum(axis=1, keepdims=True)
    counted = data.y != PADDING
    return 0.0 - float(np.log(chances[data.x[counted], data.y[counted]]).mean())
