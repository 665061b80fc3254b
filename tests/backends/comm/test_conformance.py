"""Laws of backends/comm/communicator.py and threads.py: every communicator of this process, also on a
virtual clock, keeps every promise; what is broken is caught by one.
"""

from typing import Any

import numpy as np
import pytest
from minigrad_course.machines.virtual_cluster import VirtualCluster

from backends.comm import run_ranks
from backends.comm.communicator import Wrapper
from backends.comm.mailboxes import Deadlock
from tests.backends.comm.conformance import PROMISES

WORLDS = {
    "threads": run_ranks,
    "rendezvous": lambda n, fn: run_ranks(n, fn, rendezvous=True),
    "turns": lambda n, fn: run_ranks(n, fn, seed=n),
    "turns and rendezvous": lambda n, fn: run_ranks(n, fn, seed=n, rendezvous=True),
    "virtual": lambda n, fn: VirtualCluster(n, jitter=0.5).run(fn),
}


@pytest.mark.parametrize("n", [1, 2, 3, 4])
@pytest.mark.parametrize("promise", PROMISES, ids=lambda p: p.__name__)
@pytest.mark.parametrize("world", WORLDS)
def test_keeps(world, promise, n):
    WORLDS[world](n, promise)


class SwapsTags(Wrapper):
    def start_send(self, x, to, tag=0):
        return self.comm.start_send(x, to, {0: 1, 1: 0}.get(tag, tag))


class ReusesItsReceiveBuffer(Wrapper):
    buffers = {}

    def recv(self, source, tag=0, expect=None):
        x = self.comm.recv(source, tag, expect)
        if x.ndim == 0:
            return x
        buffer = self.buffers.setdefault((self.rank, x.shape, x.dtype), np.empty_like(x))
        buffer[...] = x
        return buffer


class SendsToTheWrongNeighbour(Wrapper):
    def start_send(self, x, to, tag=0):
        return self.comm.start_send(x, (to + 1) % self.size, tag)


class SendsMemoryAsItLies(Wrapper):
    """A Fortran-order or strided array goes out as the bytes under it."""

    def start_send(self, x, to, tag=0):
        return self.comm.start_send(np.ravel(x, "K").reshape(x.shape), to, tag)


class KeepsWhatItSent(Wrapper):
    """No copy, as where nobody waits for a started send: the receiver sees later changes."""

    def start_send(self, x, to, tag=0):
        done = self.comm.start_send(x, to, tag)
        comm: Any = self.comm  # of threads
        with comm.world.lock:
            for box in comm.world.mailboxes.values():
                for message in box:
                    if message.sender == comm.world_rank and message.x.shape == np.shape(x):
                        message.x = x
        return done


class ForgetsToFinish(Wrapper):
    """Drops the wait on a started send."""

    def start_send(self, x, to, tag=0):
        self.comm.start_send(x, to, tag)
        return lambda: None


class TakesReceivesAsTheyFinish(Wrapper):
    def start_recv(self, source, tag=0, expect=None):
        return lambda: self.comm.recv(source, tag, expect)


class SplitsWithoutKey(Wrapper):
    def split(self, color, key=None):
        return self.comm.split(color)


class IgnoresLike(Wrapper):
    def recv(self, source, tag=0, expect=None):
        return self.comm.recv(source, tag)


BUGS = [
    SwapsTags,
    ReusesItsReceiveBuffer,
    SendsToTheWrongNeighbour,
    SendsMemoryAsItLies,
    KeepsWhatItSent,
    ForgetsToFinish,
    TakesReceivesAsTheyFinish,
    SplitsWithoutKey,
    IgnoresLike,
]


@pytest.mark.parametrize("bug", BUGS)
def test_some_promise_catches(bug):
    caught = []
    for promise in PROMISES:
        try:
            run_ranks(3, lambda comm, promise=promise: promise(bug(comm)), seed=1)
        except (AssertionError, Deadlock, RuntimeError):
            caught.append(promise.__name__)
    assert caught


def test_the_broken_communicator_without_a_break_keeps_all():
    whole: Any = Wrapper
    for promise in PROMISES:
        run_ranks(3, lambda comm, promise=promise: promise(whole(comm)))
