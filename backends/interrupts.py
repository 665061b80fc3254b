"""Signals that ask a process to end: each becomes an exception, and the process ends as a shell expects."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

from . import rank

SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
PATIENCE = 4.5  # seconds to end by oneself
SHOW_CURSOR = b"\x1b[?25h"


class Interrupted(SystemExit):
    """This process was told to end by the signal ``number``; ``kept`` says in words what is left of its work.

    As a SystemExit that nobody catches it ends the process without a traceback, with status 128 + number.
    """

    def __init__(self, number: int, kept: str = "nothing was kept"):
        super().__init__(128 + number)
        self.number, self.kept = number, kept


def guarded(main: Callable[[], None]) -> None:
    """Run ``main()``; where a signal ends it, say so in one line, and end with status 128 + its number.

    A rank of an MPI job ends the whole job, at once.
    """
    if rank.number() is not None:
        with heard(lambda number, _: None, rank.leave):
            main()
        return
    try:
        with interruptible():
            main()
    except Interrupted as told:
        end(told)


@contextmanager
def interruptible() -> Iterator[None]:
    """Within this SIGINT, SIGTERM and SIGHUP raise Interrupted on the main thread; later ones are ignored.

    Where the process has not ended 4.5 seconds later, inside a call of a library that hears of nothing, it
    is ended.
    """

    def interrupt(number: int, _: Any) -> None:
        for one in SIGNALS:
            signal.signal(one, signal.SIG_IGN)
        raise Interrupted(number)

    def stop(number: int) -> None:
        time.sleep(PATIENCE)
        end(Interrupted(number, "it did not stop by itself; what it had begun to write is not kept"))

    with heard(interrupt, stop):
        yield


@contextmanager
def heard(handler: Callable[[int, Any], None], act: Callable[[int], object]) -> Iterator[None]:
    """Within this ``handler`` handles the signals, on the main thread, and a thread calls ``act(number)``.

    The thread hears of a signal also while the main thread is inside a call of a library. What is ignored,
    as SIGHUP under nohup, stays so. On another thread than the main one this does nothing.
    """
    numbers = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)

    def listen() -> None:
        while (number := os.read(reader, 1)[0]) and number not in numbers:
            pass
        if number:
            act(number)

    thread = threading.Thread(target=listen, name="signals", daemon=True)
    thread.start()
    handlers = {number: signal.signal(number, handler) for number in numbers}
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        yield
    except Interrupted:  # the thread stays, until the process has ended
        raise
    except BaseException:
        close(before, handlers, writer)
        raise
    else:
        close(before, handlers, writer)


def close(before: int, handlers: dict[int, Any], writer: int) -> None:
    """Let the handlers be as they were before, and the thread end."""
    signal.set_wakeup_fd(before)
    for number, handler in handlers.items():
        signal.signal(number, handler)
    os.write(writer, b"\0")


def end(told: Interrupted) -> NoReturn:
    """Say what was interrupted, and end this process, whatever its other threads do."""
    command = sys.argv[1] if len(sys.argv) > 1 else "minigrad"
    name = signal.Signals(told.number).name
    with suppress(OSError, ValueError, AttributeError):  # closed, or None
        if sys.stdout.isatty():
            os.write(1, SHOW_CURSOR)
        sys.stdout.flush()
    with suppress(OSError, ValueError):
        print(f"minigrad: {command} was interrupted by {name}; {told.kept}", file=sys.stderr, flush=True)
    os._exit(128 + told.number)
