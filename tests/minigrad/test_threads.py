"""Laws of minigrad/tape.py: each thread has its own current tape, so ranks can be threads."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np

from minigrad import Parameter, Tape, nn, ops
from minigrad.device import to_host
from minigrad.tape import current_tape
from minigrad.testing import DEVICE, on_device


def train(seed, meet):
    """The gradients of a few steps; all threads open their tapes at the same moment."""
    rng = np.random.default_rng(seed)
    w, x = Parameter(on_device(rng.normal(size=(3, 4)))), on_device(rng.normal(size=(5, 4)))
    losses = []
    for _ in range(20):
        w.grad = None
        meet()
        with Tape() as tape:
            y = ops.tanh(ops.linear(x, w))
            meet()
            loss = (y * y).sum()
        meet()
        tape.backward(loss)
        assert w.grad is not None
        losses.append(to_host(w.grad).copy())
    return losses


def test_threads_with_a_tape_each_get_the_gradients_of_one_alone():
    barrier = Barrier(4, timeout=60)
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda seed: train(seed, barrier.wait), range(4)))
    for seed, losses in enumerate(together):
        for ours, alone in zip(losses, train(seed, lambda: None), strict=True):
            assert np.array_equal(ours, alone)


def test_a_new_thread_has_no_tape():
    with Tape(), ThreadPoolExecutor(1) as pool:
        assert pool.submit(current_tape.get).result() is None


def test_threads_may_use_one_frozen_model_at_the_same_time():
    model = nn.Linear(4, 2, rng=np.random.default_rng(0), dtype=np.float64).to(device=DEVICE)
    x = on_device(np.ones((3, 4)))
    expected = model(x).numpy()
    with ThreadPoolExecutor(4) as pool:
        for y in pool.map(lambda _: model(x).numpy(), range(16)):
            assert np.array_equal(y, expected)
