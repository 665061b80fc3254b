"""The operations on files that a checkpoint needs, and when what they did is safe from a loss of power."""

from __future__ import annotations

import os
from pathlib import Path


class Disk:
    """A file system. A name (of a new, renamed or removed file) is safe once its folder is synced.

    Tests put another in its place, which loses what POSIX allows to be lost.
    """

    def make_folder(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)

    def write(self, file: Path, content: bytes) -> None:
        """Write a new file; its content is safe at the return, its name is not."""
        with file.open("wb") as opened:
            opened.write(content)
            opened.flush()
            os.fsync(opened.fileno())

    def rename(self, old: Path, new: Path) -> None:
        """Give a file another name, or a folder one that is not there."""
        os.rename(old, new)

    def sync_folder(self, folder: Path) -> None:
        """Return when the names in the folder are safe."""
        if os.name != "posix":
            return
        try:
            descriptor = os.open(folder, os.O_RDONLY)
        except PermissionError:  # as of /home, in which this user makes no names
            return
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def remove(self, file: Path) -> None:
        file.unlink()

    def remove_folder(self, folder: Path) -> None:
        """Remove an empty folder."""
        folder.rmdir()

    def names(self, folder: Path) -> list[str]:
        """The names in a folder, sorted; none where there is no such folder."""
        try:
            return sorted(os.listdir(folder))
        except FileNotFoundError:
            return []

    def read(self, file: Path) -> bytes:
        return file.read_bytes()
