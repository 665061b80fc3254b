"""What workers print, copied to this process's own output, up to a limit."""

from __future__ import annotations

import os
import select
import threading
import time

MAX_OUTPUT = 15 * 2**20  # bytes that all workers print; the judge's output file may be a little longer
DRAIN_SECONDS = 1.0


class WorkerOutput:
    """The pipes into which workers print, one for each: what one does to a pipe, another could see.

    A thread copies from each pipe. Beyond MAX_OUTPUT bytes in all, the pipes are closed.
    """

    def __init__(self):
        self.lock, self.left = threading.Lock(), MAX_OUTPUT
        self.pipes: set[int] = set()  # their reading ends
        self.threads: list[threading.Thread] = []

    def open_pipe(self) -> tuple[int, int]:
        """A new pipe, as the descriptors to read and to write."""
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        self.pipes.add(reading)
        self.threads.append(threading.Thread(target=self.copy_all, args=(reading,), name="echo", daemon=True))
        self.threads[-1].start()
        return reading, writing

    def copy_all(self, reading: int) -> None:
        """Copy until the pipe ends, or the limit is reached; then close it."""
        while self.copy_available(reading):
            select.select([reading], [], [])
        with self.lock:
            self.pipes.remove(reading)
            os.close(reading)

    def copy_available(self, reading: int) -> bool:
        """Copy what is in the pipe now; whether more may come."""
        with self.lock:
            while reading in self.pipes and self.left:
                try:
                    data = os.read(reading, min(self.left, 2**16))
                except BlockingIOError:
                    return True
                if not data:
                    break
                os.write(1, data)
                self.left -= len(data)
        return False

    def join(self) -> None:
        """Wait until all is copied; the workers have ended."""
        end = time.monotonic() + DRAIN_SECONDS
        for thread in self.threads:
            thread.join(max(0.0, end - time.monotonic()))
