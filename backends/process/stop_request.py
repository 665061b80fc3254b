"""A signal as a request: the program hears of it at its next step, and can save its state before it ends."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Self

from . import rank
from .signals import REPEAT, SIGNALS, TIMEOUT, Interrupted, end, listen

SAVE_TIMEOUT = 25.0  # seconds from a signal to the end of the save: 30 s after scancel's SIGTERM Slurm kills
SAME_REQUEST = 0.5  # seconds within which signals are one request: timeout(1) sends each one twice


class StopRequest:
    """``with StopRequest() as request:``, in which the first signal only sets ``request.number``.

    A second signal acts as it would without the request; so does the first one once ``timeout`` seconds have
    passed in the ``with``. Only the main thread hears signals; in another one ``number`` stays None.
    """

    def __init__(self, timeout: float = SAVE_TIMEOUT):
        self.timeout = timeout
        self.number: int | None = None
        self.heard_at = self.read_at = float("inf")  # by the main thread, and by the one that reads the pipe
        self.active = True
        self.timer: threading.Timer | None = None
        self.undo: Callable[[], None] | None = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self.undo = listen(SIGNALS, self.hear, self.enforce)
        return self

    def __exit__(self, *error: object) -> None:
        self.restore()

    def hear(self, number: int, _: FrameType | None) -> None:
        """The handler, which runs in the main thread."""
        now = time.monotonic()
        if self.number is None:
            self.number, self.heard_at = number, now
        elif now - self.heard_at > SAME_REQUEST:
            self.act(number)

    def act(self, number: int) -> None:
        """Let the signal act as it would without this request."""
        self.restore()
        os.kill(os.getpid(), number)

    def restore(self) -> None:
        """Give the signals back to those who handled them before; called again, it does nothing."""
        self.active, undo, self.undo = False, self.undo, None
        if self.timer is not None:
            self.timer.cancel()
        if undo is not None:
            undo()

    def enforce(self, number: int) -> None:
        """Bound the time of the request; runs in the thread of ``listen``, for each signal.

        A main thread that is inside a library call cannot act on a second signal, so this ends the process.
        """
        now = time.monotonic()
        if self.read_at > now:
            self.read_at = now
            self.timer = threading.Timer(self.timeout, os.kill, (os.getpid(), number))
            self.timer.daemon = True
            self.timer.start()
            if not self.active:  # ``restore`` came between the signal and this line, and saw no timer
                self.timer.cancel()
        elif now - self.read_at > SAME_REQUEST:
            give_up = now + TIMEOUT
            while self.undo is not None and time.monotonic() < give_up:
                time.sleep(REPEAT)
            if self.undo is not None and rank.number() is not None:
                rank.leave(number)
            elif self.undo is not None:
                end(Interrupted(number, "it did not stop by itself; what it had begun to write is not kept"))
