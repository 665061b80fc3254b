"""Laws of minigrad/strategy.py, backends/data_parallel/, backends/model_parallel/ and backends/pipeline/:
laws of minigrad/strategy.py, backends/data_parallel/, backends/model_parallel/ and backends/pipeline/:
what a strategy takes it gives back, where it is closed and where it is dropped; the model stays.
"""

import gc
import time
import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.comm import run_ranks
from backends.data_parallel import DataParallel
from backends.data_parallel.shared_memory import SharedMemoryDataParallel
from minigrad import nn
from tests.backends.placed_often import STRATEGIES, train


def backgrounds(comm) -> int:
    """The threads of this world's backgrounds that have not ended; those that were closed get time to end."""
    running = [thread for thread in comm.world.threads if thread.is_alive()]
    end = time.monotonic() + 5
    while len(running) > comm.size and time.monotonic() < end:
        time.sleep(0.001)
        running = [thread for thread in running if thread.is_alive()]
    return len(running)


@pytest.mark.parametrize("close", [True, False], ids=["closed", "dropped"])
@pytest.mark.parametrize("name", STRATEGIES)
def test_placing_again_and_again_grows_nothing(name, close):
    """Neither groups nor threads, of which each rank has at most one that waits to be closed."""

    def work(comm):
        for _ in range(4):
            train(comm, name, close)
        gc.collect(1)
        comm.split(0)  # all ranks come together: what was dropped is freed
        comm.barrier_with("to count the threads")
        assert len(comm.parts.all) <= 2 and backgrounds(comm) <= comm.size
        comm.barrier_with("to go on")

    run_ranks(2, work)


@given(ranks=st.integers(1, 3), name=st.sampled_from(["one-node", "replicated"]), close=st.booleans())
def test_shared_memory_goes_with_the_last_array_in_it(ranks, name, close):
    """No part of it is held by the communicator, a thread or a cycle of references."""
    parts: list[weakref.ref] = []

    def work(comm):
        share = comm.share

        def recorder(nbytes):
            memory = share(nbytes)
            parts.extend(map(weakref.ref, memory.parts))
            return memory

        comm.share = recorder
        backend = {"one-node": SharedMemoryDataParallel, "replicated": DataParallel}[name](comm)
        model = backend.place(nn.Linear(3, 4, rng=np.random.default_rng(0)))
        before = model.weight.data.copy()
        if close:
            backend.close()
            comm.barrier_with("to look")
            assert (model.weight.data == before).all() and model.weight.data.base is None
            if name == "one-node":
                assert all(ref() is None for ref in parts if parts)
        del backend, model, comm.share

    gc.disable()
    try:
        run_ranks(ranks, work)
        assert [ref() for ref in parts if ref() is not None] == []
    finally:
        gc.enable()
