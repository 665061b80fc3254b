"""``metrics.jsonl``: what a training measures, written while it runs, one line of JSON for each record.

A record is written by one call of the operating system, without a buffer, so a process that is killed leaves
all its records. Only a full disk or the end of the machine leaves a torn last line, which readers ignore.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

LAST = 1 << 16  # bytes at the end of a file in which its last record is looked for

Record = dict[str, Any]


class MetricsLog:
    """Appends records to the new ``file``; raises OSError where there is one, or no folder for it.

    Errors call it ``name``, which a file has that is renamed later.
    """

    def __init__(self, file: Path, name: Path | None = None):
        self.file, self.name = file.open("xb", buffering=0), name or file

    def append(self, records: Iterable[Record]) -> None:
        """Write a line for each record; raises OSError, which names the file, where the disk is full."""
        lines = "".join(json.dumps(record) + "\n" for record in records).encode()
        try:
            if self.file.write(lines) != len(lines):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise OSError(f"cannot write {self.name}: {error.strerror}") from error

    def close(self) -> None:
        """Close the file; its records were written before."""
        self.file.close()


def read_metrics(file: Path) -> list[Record]:
    """The records of a metrics log in their order; a torn last line is none of them.

    Raises ValueError, with the number of the line, for any other line that is no JSON object.
    """
    *lines, _ = file.read_bytes().split(b"\n")
    return [read_record(line, f"{file}, line {number}") for number, line in enumerate(lines, 1)]


def first_and_last(file: Path) -> tuple[Record, Record]:
    """The first and the last record of a metrics log, of whose other lines little is read.

    Raises ValueError where there is none.
    """
    with file.open("rb") as log:
        first = log.readline()
        log.seek(max(log.seek(0, os.SEEK_END) - LAST, 0))
        *lines, _ = log.read().split(b"\n")
    if not first.endswith(b"\n"):
        raise ValueError(f"{file} holds no record")
    return read_record(first, f"{file}, line 1"), read_record(lines[-1], f"{file}, its last line")


def read_record(line: bytes, where: str) -> Record:
    """The record in a line; raises ValueError, which says ``where`` it is, for anything but a JSON object."""
    try:
        record = json.loads(line)
    except ValueError as error:
        raise ValueError(f"{where}: this is no JSON ({error})") from None
    if not isinstance(record, dict):
        raise ValueError(f"{where}: this is no JSON object")
    return record
