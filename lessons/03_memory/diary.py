"""When arrays come and go: a layer that changes nothing, and writes down what it sees pass."""

import tracemalloc
import weakref

from minigrad import nn, op
from minigrad.memory import base_of


@op
def watch(x, *, diary, name):
    """x itself; its gradient passes unchanged, too."""
    diary.note("activation", name, x)

    def back(g):
        diary.note("gradient", name, g)
        return g

    return x, (back,)


class Mark(nn.Module):
    """Stands behind a layer, to note that it is done."""

    def __init__(self, diary, name):
        self.diary, self.name = diary, name

    def forward(self, x):
        return watch(x, diary=self.diary, name=self.name)


class Diary:
    """The life of every array that was noted, and the bytes in use, step by step.

    A step ends when something is noted, or with ``tick``. ``lives[kind, name]`` is ``[born, died]``, the
    steps in which that happened, ``died`` None for one that was still there at the end; ``nbytes`` its size.
    ``now[i]`` and ``most[i]`` are the bytes allocated since the start, at the end of step i and at most.
    """

    def __init__(self):
        self.lives, self.nbytes, self.names, self.now, self.most = {}, {}, [], [], []

    def __enter__(self):
        tracemalloc.start()
        return self

    def __exit__(self, *_):
        tracemalloc.stop()

    def note(self, kind, name, array, ends_step=True):
        """``array`` exists, since this step; with ``ends_step`` the step is over."""
        owner, key = base_of(array), (kind, name)
        life = self.lives[key] = [len(self.now), None]
        self.nbytes[key] = owner.nbytes
        weakref.finalize(owner, self.died, life).atexit = False
        del owner, array
        if ends_step:
            self.tick(name if kind == "activation" else f"{name} back")

    def died(self, life):
        if tracemalloc.is_tracing():  # else the diary is closed
            life[1] = len(self.now)

    def tick(self, name):
        now, most = tracemalloc.get_traced_memory()
        self.now.append(now)
        self.most.append(most)
        self.names.append(name)
        tracemalloc.reset_peak()
