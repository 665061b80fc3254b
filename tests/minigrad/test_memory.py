"""Laws of minigrad/memory.py and tape.py: what a tape holds, counts and lets go."""

import gc
import tracemalloc
import weakref

import numpy as np
import pytest

from minigrad import Parameter, Tape, nn, ops, optim, testing
from minigrad.testing import on_device
from tests.minigrad import tape_laws

on_host = pytest.mark.skipif(testing.DEVICE != "numpy", reason="tracemalloc sees the host's memory only")


def small_net(dtype=np.float32):
    rng = np.random.default_rng(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, rng=rng), nn.BatchNorm(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, stride=2, rng=rng), nn.GELU(), nn.AvgPool2d(2), nn.Flatten(),
        nn.Dropout(0.2, rng=rng), nn.Linear(8, 10, rng=rng),
    ).to(dtype=dtype, device=testing.DEVICE)  # fmt: skip


def loss_of(model, x, labels):
    return ops.cross_entropy(model(x), labels)


@on_host
def test_nbytes_is_what_is_held():
    tape_laws.nbytes_is_what_is_held(Tape)


@on_host
def test_nbytes_of_a_network_is_what_the_garbage_collector_finds():
    x = np.random.default_rng(1).normal(size=(8, 3, 16, 16)).astype(np.float32)
    model = small_net()
    with Tape() as tape:
        loss_of(model, x, np.arange(8))
    assert tape.nbytes == tape_laws.held_bytes(tape) > 0


@on_host
def test_nbytes_is_close_to_the_bytes_that_are_alive():
    model = small_net()
    labels = np.arange(64) % 10
    with Tape() as tape:  # whatever is cached at the first use is there before
        loss_of(model, np.ones((64, 3, 16, 16), np.float32), labels)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    x = np.ones((64, 3, 16, 16), np.float32)
    with Tape() as tape:
        loss = loss_of(model, x, labels)
    del x
    alive = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert loss.size == 1
    # Closures, tuples and the loss are some tens of kilobytes beside megabytes of arrays.
    assert abs(alive - tape.nbytes) < 0.03 * alive, f"alive {alive}, nbytes {tape.nbytes}"


def test_nbytes_counts_a_base_once_and_leaves_not_at_all():
    w = Parameter(on_device(np.ones((10, 10))))
    x = on_device(np.ones((10, 10)))
    with Tape() as tape:
        _ = w * w.T  # holds the leaf's own data
        assert tape.nbytes == 0
        _ = w * x
        _ = w * x[:1].T  # a view of the same array
    assert tape.nbytes == x.nbytes


def test_backward_releases_what_the_tape_held():
    w = Parameter(on_device(np.ones(100)))
    with Tape() as tape:
        h = w.exp()
        loss = (h * h).sum()
    watched = weakref.ref(h.data)
    del h
    tape.backward(loss)
    assert watched() is None
    assert tape.nbytes == 0
    assert len(tape.entries) == 0
    assert not tape.leaves


def test_arrays_are_released_as_the_walk_passes_them():
    tape_laws.arrays_are_released_as_the_walk_passes(Tape)


def test_an_unused_tape_and_its_values_go_without_the_garbage_collector():
    gc.disable()
    try:
        w = Parameter(on_device(np.ones(100)))
        with Tape() as tape:
            loss = w.exp().sum()
        watched = weakref.ref(loss)
        del loss, tape
        assert watched() is None
    finally:
        gc.enable()


@on_host
def test_a_thousand_training_steps_take_no_more_memory_than_a_hundred():
    rng = np.random.default_rng(0)
    model = nn.Sequential(nn.Linear(4, 8, rng=rng), nn.BatchNorm(8), nn.ReLU(), nn.Linear(8, 3, rng=rng))
    optimizer = optim.Adam(model.parameters())
    x, labels = rng.normal(size=(6, 4)).astype(np.float32), np.arange(6) % 3

    def train(steps):
        for _ in range(steps):
            optimizer.zero_grad()
            with Tape() as tape:
                loss = loss_of(model, x, labels)
            tape.backward(loss)
            optimizer.step()

    tracemalloc.start()
    train(100)
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    train(1000)
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 1000, f"{grown} bytes in 1,000 steps: less than one each is no leak"
