"""Late kernels: what a kernel writes stays out of memory until its stream has come that far.

A GPU runs behind the host. With STRICT_CUPY_LATE=1, or inside of ``with late():``, the values of a kernel or
an upload wait in their stream's queue, and the memory shows garbage (NaN) or old bytes. They are written when

- the stream, its device or a later event is synchronized, or the host copies something by ``get``;
- a kernel of the same stream reads that memory (then with all that the stream wrote earlier).

Whoever uses the memory by its address, as CUDA-aware MPI does, reads or causes wrong numbers if nobody
synchronized. Not modelled: a kernel reads its operands when it is launched, not later; and no memory is used
again while a kernel may still write to it.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

_lock = threading.RLock()
_late = os.environ.get("STRICT_CUPY_LATE", "") not in ("", "0")


class Later:
    """Values that other devices help to compute; without any, memory is left as it is."""

    def __init__(self) -> None:
        self.ready = threading.Event()
        self.values: np.ndarray | None = None

    def set(self, values: np.ndarray | None) -> None:
        if not self.ready.is_set():
            self.values = values
            self.ready.set()


class Queue:
    """The writes that a stream still has to do, in order: (memory, values)."""

    def __init__(self) -> None:
        self._writes: list[tuple[np.ndarray, np.ndarray | Later]] = []
        self._done = 0  # writes that left the queue

    def write(self, memory: np.ndarray, values: np.ndarray) -> None:
        """Write ``values`` to ``memory``: now, or late where kernels are late."""
        with _lock:
            if _late:
                self._writes.append((memory, values))
            else:
                memory[...] = values

    def write_later(self, memory: np.ndarray, values: Later) -> None:
        with _lock:
            self._writes.append((memory, values))

    def is_ready(self, position: int | None = None) -> bool:
        """Whether nothing that other devices compute is missing up to ``position``."""
        return all(later.ready.is_set() for later in self._later(position))

    def _later(self, position: int | None) -> list[Later]:
        with _lock:
            count = len(self._writes) if position is None else max(0, position - self._done)
            return [values for _, values in self._writes[:count] if isinstance(values, Later)]

    def position(self) -> int:
        """How many writes the stream has been asked for: an event records it."""
        with _lock:
            return self._done + len(self._writes)

    def run(self, position: int | None = None) -> None:
        """Do the writes up to ``position``, or all of them; wait for what other devices compute."""
        for later in self._later(position):
            later.ready.wait()
        with _lock:
            count = len(self._writes) if position is None else max(0, position - self._done)
            for memory, values in self._writes[:count]:
                values = values.values if isinstance(values, Later) else values
                if values is not None:
                    memory[...] = values
            self._done += len(self._writes[:count])
            del self._writes[:count]

    def run_before_reading(self, memory: np.ndarray) -> None:
        """Do the writes up to the last one to ``memory``."""
        with _lock:
            for i in range(len(self._writes) - 1, -1, -1):
                if np.may_share_memory(self._writes[i][0], memory):
                    self.run(self._done + i + 1)
                    return


def kernels_are_late() -> bool:
    return _late


@contextmanager
def late() -> Iterator[None]:
    """Kernels are late inside of this block. What still waits at its end waits on."""
    global _late
    before, _late = _late, True
    try:
        yield
    finally:
        _late = before


def garbage(dtype: np.dtype) -> object:
    """What uninitialised memory holds here."""
    return np.nan if dtype.kind in "fc" else dtype.kind == "b" or 77
