"""What a checkpoint needs of its machine: files that survive a loss of power, a clock, a thread."""

from __future__ import annotations

import errno
import os
import platform
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

INTERVAL = 0.05  # seconds between two calls while a thread is waited for


class Disk:
    """A file system. A name (of a new, renamed or removed file) is safe once its folder is synced.

    Others in its place lose what POSIX allows to be lost, or live on a simulated clock.
    """

    def make_folder(self, folder: Path) -> None:
        """Make a folder, and those above it; raises OSError where it is not writable."""
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))

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
        """Return when the names in the folder are safe, if its file system can tell."""
        if os.name != "posix":
            return
        try:
            descriptor = os.open(folder, os.O_RDONLY)
        except PermissionError:  # as of /home, in which this user makes no names
            return
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # a file system without it, such as squashfs
                raise
        finally:
            os.close(descriptor)

    def remove(self, file: Path) -> None:
        """Remove a file."""
        file.unlink()

    def remove_folder(self, folder: Path) -> None:
        """Remove an empty folder."""
        folder.rmdir()

    def names(self, folder: Path) -> list[str]:
        """The names in a folder, sorted; none where there is no such folder."""
        try:
            return sorted(os.listdir(folder))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def read(self, file: Path) -> bytes:
        """All bytes of a file."""
        return file.read_bytes()

    def reserve(self, file: Path) -> Callable[[], object]:
        """Lock a new file until this process ends, or calls the function returned, which removes it.

        Raises BlockingIOError, whose message names the process, where another process holds the lock. Does
        nothing where the file system has no locks.
        """
        if fcntl is None:
            return lambda: None
        while True:
            try:
                descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
            except OSError:  # as on a full disk
                return lambda: None
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):
                holder = os.read(descriptor, 1000).decode(errors="replace") or "another process"
                os.close(descriptor)
                raise BlockingIOError(errno.EAGAIN, holder) from None
            except OSError:
                os.close(descriptor)
                return lambda: None
            with suppress(OSError):
                if os.path.samestat(os.fstat(descriptor), os.stat(file)):  # else it was removed meanwhile
                    os.ftruncate(descriptor, 0)
                    os.write(descriptor, f"process {os.getpid()} on {platform.node()}".encode())
                    return partial(unlock, file, descriptor)
            os.close(descriptor)

    # Time, threads and random numbers

    def now(self) -> float:
        """A clock in seconds, for time limits."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait for some seconds of this clock."""
        time.sleep(seconds)

    def start(self, job: Callable[[], None], meanwhile: Callable[[], object]) -> Callable[[], None]:
        """Run ``job`` on a thread; the function returned waits for it, and calls ``meanwhile`` at times."""
        thread = threading.Thread(target=job, name="checkpoint", daemon=True)
        thread.start()

        def finish() -> None:
            while thread.is_alive():
                thread.join(INTERVAL)
                meanwhile()

        return finish

    def random_bits(self, count: int) -> int:
        """An integer below 2^count, for a name that no other run takes."""
        return secrets.randbits(count)


def unlock(file: Path, descriptor: int) -> None:
    """Remove a locked file, and release its lock."""
    with suppress(OSError):
        file.unlink()
    os.close(descriptor)


REAL = Disk()
