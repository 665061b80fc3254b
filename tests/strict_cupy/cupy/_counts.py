"""What a GPU would have been asked to do: kernels, products, memsets, copies and synchronizations.

``counted()`` gives the events inside of a ``with``, and the project's line that caused each of them.
STRICT_CUPY_NOTES=1 prints at the end what differs from NumPy without an error.
"""

import atexit
import os
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

PROJECT = ("minigrad", "backends", "lessons", "minigrad_course", "benchmarks", "tests")
FOLDER = os.path.dirname(os.path.abspath(__file__))

total: Counter[str] = Counter()
places: Counter[tuple[str, str]] = Counter()
notes: Counter[tuple[str, str]] = Counter()
_lock = threading.Lock()
_readers_of_places = (
    0  # walking the stack at every event is slow, so it is done only for who reads the places
)


def note(kind: str, times: int = 1, nbytes: int = 0) -> None:
    """Count an event, such as "launch", "gemm", "memset", "copy to device", "copy to host", "synchronize".

    Raises what CuPy raises where it is refused during a capture. A graph that is launched is one event.
    """
    from . import cuda

    if cuda.in_launch():
        return
    cuda.check_event(kind)
    with _lock:
        total[kind] += times
        if nbytes:
            total[kind + " bytes"] += nbytes
        if _readers_of_places:
            places[kind, caller()] += times


def remark(text: str) -> None:
    """Remember where CuPy behaves differently from NumPy without raising an error."""
    if os.environ.get("STRICT_CUPY_NOTES", "") not in ("", "0"):
        with _lock:
            notes[text, caller()] += 1


@contextmanager
def counted() -> Iterator[tuple[Counter[str], Counter[tuple[str, str]]]]:
    """Two counters, filled when the block ends: events by kind, and events by kind and line."""
    global _readers_of_places
    events: Counter[str] = Counter()
    lines: Counter[tuple[str, str]] = Counter()
    with _lock:
        _readers_of_places += 1
        events_before, lines_before = total.copy(), places.copy()
    try:
        yield events, lines
    finally:
        with _lock:
            _readers_of_places -= 1
            events.update(total - events_before)
            lines.update(places - lines_before)


def caller() -> str:
    """The innermost line of the project on the stack, as ``minigrad/optim.py:12``."""
    frame = sys._getframe(2)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(FOLDER):
            for part in PROJECT:
                if f"/{part}/" in file:
                    return f"{part}/{file.split(f'/{part}/')[-1]}:{frame.f_lineno}"
        frame = frame.f_back
    return "?"


@atexit.register
def print_notes() -> None:
    for (text, place), times in notes.most_common(40):
        print(f"[strict cupy] {times} x {text} | {place}", file=sys.stderr, flush=True)
