"""Signals that ask a process to end: each becomes an exception, and the process ends as a shell expects."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

from . import rank
from .signals import SIGNALS, listen

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
    """Run ``main()``, in which SIGINT, SIGTERM and SIGHUP raise Interrupted on the main thread, once.

    Then say what was interrupted, in one line, and end with status 128 + the signal's number. Where the main
    thread has not ended 4.5 seconds later, inside a call of a library that hears of nothing, the process is
    ended. A rank of an MPI job ends the whole job at once.
    """
    if threading.current_thread() is not threading.main_thread():
        main()
        return
    if rank.number() is not None:
        rank.listen_for(SIGNALS)
        main()
        return
    told: list[int] = []

    def interrupt(number: int, _: Any) -> None:
        if not told:
            told.append(number)
            raise Interrupted(number)

    def stop(number: int) -> None:
        time.sleep(PATIENCE)
        if os.isatty(1):
            os.write(1, SHOW_CURSOR)
        end(Interrupted(number, "it did not stop by itself; what it had begun to write is not kept"))

    undo = listen(SIGNALS, interrupt, stop)
    try:
        main()
    except Interrupted as interrupted:
        end(interrupted)
    finally:
        undo()


def end(told: Interrupted) -> NoReturn:
    """Say what was interrupted, and end this process, whatever its other threads do."""
    command = sys.argv[1] if len(sys.argv) > 1 else "minigrad"
    name = signal.Signals(told.number).name
    with suppress(OSError, ValueError, AttributeError):  # closed, or None
        sys.stdout.flush()
    with suppress(OSError, ValueError):
        print(f"minigrad: {command} was interrupted by {name}; {told.kept}", file=sys.stderr, flush=True)
    os._exit(128 + told.number)
