"""Signals that ask a process to end: each becomes an exception, and the process ends as a shell expects."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from types import FrameType
from typing import Any, NoReturn, TypeVar

NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1")  # SIGUSR1: what Slurm's --signal is usually told to send
SIGNALS = [getattr(signal, name) for name in NAMES if hasattr(signal, name)]
HANG_UP = getattr(signal, "SIGHUP", None)
TIMEOUT = 4.5  # seconds that the main thread has to end after a signal
REPEAT = 0.05  # seconds after which a signal that had no effect is repeated
SHOW_CURSOR = b"\x1b[?25h"
Handler = Callable[[int, Any], None]
R = TypeVar("R")


class Interrupted(SystemExit):
    """The signal ``number`` interrupted this process; ``saved`` says in words which results were saved.

    It is a SystemExit with status 128 + number: uncaught, it ends the process without a traceback.
    """

    def __init__(self, number: int, saved: str = "nothing was kept"):
        super().__init__(128 + number)
        self.number, self.saved = number, saved

    def line(self) -> str:
        """What the user reads."""
        command = sys.argv[1] if len(sys.argv) > 1 else "minigrad"
        name = signal.Signals(self.number).name
        return f"minigrad: {command} was interrupted by {name}; {self.saved}"


def guarded(main: Callable[[], None]) -> None:
    """Run ``main()``. The first of SIGINT, SIGTERM, SIGHUP and SIGUSR1 raises Interrupted in the main thread.

    Then one line reports the interruption, and the process exits with status 128 + the signal's number. If
    the main thread is inside a library call and does not end within 4.5 seconds, the process is killed.

    Libraries swallow an exception in places, such as inside an import or a ``__del__``; no reference to it
    is left then. So the signal is repeated until one takes effect, and raises nothing inside an import, or
    inside ``uninterrupted``. Where another handler has been installed after that, it gets the signal once.
    """
    if threading.current_thread() is not threading.main_thread():
        main()
        return
    raised: weakref.ref | None = None
    heard: set[int] = set()

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal raised
        heard.add(number)
        if (raised is None or raised() is None) and not postponed(frame):
            interruption = Interrupted(number)
            raised = weakref.ref(interruption)
            try:
                raise interruption
            finally:
                del interruption  # else its traceback would keep it

    def stop(number: int) -> None:
        give_up = time.monotonic() + TIMEOUT
        while time.monotonic() < give_up:
            time.sleep(REPEAT)
            handler = signal.getsignal(number)
            if handler is interrupt:
                os.kill(os.getpid(), number)
            elif callable(handler) and handler is not signal.default_int_handler:
                os.kill(os.getpid(), number)  # to a StopRequest that began meanwhile, and bounds its own wait
                return
        if os.isatty(1):
            os.write(1, SHOW_CURSOR)
        end(Interrupted(number, "it did not stop by itself; what it had begun to write is not kept"))

    undo = listen(SIGNALS, interrupt, stop, heard)
    try:
        main()
    except Interrupted as interruption:
        end(interruption)
    finally:
        undo()


def uninterrupted(function: Callable[..., R], *args: Any, **settings: Any) -> R:
    """``function(...)``; a signal that arrives meanwhile raises Interrupted only afterwards."""
    return function(*args, **settings)


def postponed(frame: FrameType | None) -> bool:
    """Whether ``frame``, or one that called it, is Python's import or ``uninterrupted``."""
    while frame is not None:
        code = frame.f_code
        if code is uninterrupted.__code__ or code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def end(interruption: Interrupted) -> NoReturn:
    """Report the interruption, and end this process even if other threads still run."""
    with suppress(OSError, ValueError, AttributeError):  # stdout is closed, or None
        sys.stdout.flush()
    with suppress(OSError, ValueError):
        print(interruption.line(), file=sys.stderr, flush=True)
    os._exit(128 + interruption.number)


def listen(
    numbers: Iterable[int],
    handler: Handler,
    act: Callable[[int], object],
    heard: Collection[int] = frozenset(),
) -> Callable[[], None]:
    """Install ``handler``, which runs in the main thread, and a thread that calls ``act(number)``.

    The thread reacts even while the main thread is inside a library call, and to a signal that the handler
    has ``heard`` even if another handler was installed before the thread could look. An ignored SIGHUP stays
    ignored, because nohup relies on it. Returns a function that restores the previous handlers. Only the main
    thread may call this.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)

    listening = True

    def wait() -> None:
        with open(reader, "rb", buffering=0) as source:
            while number := source.read(1):  # nothing at the end: the other end is closed
                own = signal.getsignal(number[0]) is handler  # the program has installed no other one
                if listening and (own or number[0] in heard):
                    act(number[0])

    threading.Thread(target=wait, name="signals", daemon=True).start()
    before = {number: signal.getsignal(number) for number in numbers}
    before = {n: old for n, old in before.items() if n != HANG_UP or old is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, handler)
    descriptor = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def undo() -> None:
        nonlocal listening
        listening = False
        signal.set_wakeup_fd(descriptor)
        for number, old in before.items():
            signal.signal(number, old)
        os.close(writer)

    return undo
