"""Handlers of signals, and a thread that hears of a signal whatever the main thread does."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable
from typing import Any

SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
HANG_UP = getattr(signal, "SIGHUP", None)
Handler = Callable[[int, Any], None]


def listen(numbers: Iterable[int], handler: Handler, act: Callable[[int], object]) -> Callable[[], None]:
    """Let ``handler`` handle the signals, on the main thread, and a thread call ``act(number)``.

    The thread hears of a signal also while the main thread is inside a call of a library. A SIGHUP that is
    ignored stays so, as nohup wants it. What is returned undoes it. Only the main thread may call this.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)

    def hear() -> None:
        while (number := os.read(reader, 1)[0]) and signal.getsignal(number) is not handler:
            pass  # another signal, or one for which the program has a handler of its own by now
        if number:
            act(number)

    threading.Thread(target=hear, name="signals", daemon=True).start()
    before = {number: signal.getsignal(number) for number in numbers}
    before = {n: old for n, old in before.items() if n != HANG_UP or old is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, handler)
    descriptor = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def undo() -> None:
        signal.set_wakeup_fd(descriptor)
        for number, old in before.items():
            signal.signal(number, old)
        os.write(writer, b"\0")

    return undo
