"""When arrays are allocated and freed: a layer that records its input, and the trace of all records."""

import tracemalloc
import weakref

from minigrad import nn, op
from minigrad.memory import base_of


@op
def watch(x, *, trace, name):
    """x itself; its gradient passes unchanged, too."""
    trace.record("activation", name, x)

    def back(g):
        trace.record("gradient", name, g)
        return g

    return x, (back,)


class Mark(nn.Module):
    """A layer that returns its input, and records in ``trace`` that the layer ``name`` before it is done."""

    def __init__(self, trace, name):
        self.trace, self.name = trace, name

    def forward(self, x):
        return watch(x, trace=self.trace, name=self.name)


class MemoryTrace:
    """The life of every array that was recorded, and the bytes in use, tick by tick.

    A tick ends when an array is recorded, or with ``end_tick``. ``lives[kind, name]`` is ``[born, died]``,
    the ticks in which the array was recorded and freed; ``died`` is None for an array that was never freed.
    ``nbytes[kind, name]`` is its size. ``now[i]`` and ``most[i]`` are the bytes allocated since the start:
    at the end of tick i, and at most during it; ``names[i]`` says what happened in it.
    """

    def __init__(self):
        self.lives, self.nbytes, self.names, self.now, self.most = {}, {}, [], [], []

    def __enter__(self):
        tracemalloc.start()
        return self

    def __exit__(self, *_):
        tracemalloc.stop()

    def record(self, kind, name, array, ends_tick=True):
        """``array`` exists from this tick on; with ``ends_tick`` the tick is over."""
        owner, key = base_of(array), (kind, name)
        life = self.lives[key] = [len(self.now), None]
        self.nbytes[key] = owner.nbytes
        weakref.finalize(owner, self.died, life).atexit = False
        del owner, array
        if ends_tick:
            self.end_tick(name if kind == "activation" else f"{name} back")

    def died(self, life):
        if tracemalloc.is_tracing():  # else the trace has ended
            life[1] = len(self.now)

    def end_tick(self, name):
        now, most = tracemalloc.get_traced_memory()
        self.now.append(now)
        self.most.append(most)
        self.names.append(name)
        tracemalloc.reset_peak()
