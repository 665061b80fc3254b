"""The trainings behind the published figures: a small MLP on 4,000 digits, by the library's own strategies.

784-128-10 with ReLU, weights of variance 2 / n_in (He et al. 2015), float32. 4,000 of the embedded 5,000
training images to learn from, the other 1,000 to test on. Ranks are threads. Each function returns the loss
over all 4,000 after training, inf where it diverged, and the test accuracy.
"""

from __future__ import annotations

import math
import warnings
from itertools import chain, count, islice
from typing import Any

import numpy as np
from minigrad_course.machines.virtual_cluster import VirtualCluster
from threadpoolctl import threadpool_limits

from backends.comm import run_ranks
from backends.comm.collectives.link import Link
from backends.data_parallel import DataParallel
from backends.data_parallel.compression import Compressed
from backends.data_parallel.parameter_server import ParameterServer
from minigrad import mnist, nn, ops, optim
from minigrad.data import Batch, minibatches
from minigrad.train import accuracy, fit

Result = tuple[float, float]
State = dict[str, np.ndarray]


def data_parallel(seed: int, *, lr: float, epochs: int, momentum: float = 0.9, **compression: Any) -> Result:
    """Four ranks with 16 samples each; dense, or as ``Compressed`` is told to.

    The momentum is the optimizer's, or the compressor's where that has its own.
    """
    train, test = digits()
    own = compression.get("compress") == "dgc"
    if own:
        compression["momentum"] = momentum

    def work(comm: Any) -> State:
        backend = Compressed(comm, **compression) if compression else DataParallel(comm)
        model = backend.place(network(seed))
        method = optim.SGD(model.parameters(), lr, momentum=0.0 if own else momentum)
        fit(model, method, ops.cross_entropy, train, backend=backend, epochs=epochs, batch_size=64, seed=seed)
        return model.state_dict()

    with threadpool_limits(1), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "compress=power-sgd sends")  # the biases as they are
        try:
            state = run_ranks(4, work)[0]
        except FloatingPointError:
            return math.inf, 0.0
        return quality(state, train, test)


def stale(
    seed: int, *, lr: float, staleness: int, stale_rate: str = "naive", epochs: int = 8, size: int = 32
) -> Result:
    """Plain SGD in which every gradient is exactly ``staleness`` updates old, but for the first few.

    One server and staleness + 1 workers, all equally fast on a virtual clock: so they push in turn, and
    between a worker's pull and its push come the updates of all others. Each pushes the gradient of ``size``
    samples; batches come in the serial run's order, until the last worker has made the last step. Raises
    RuntimeError where a gradient had another age.
    """
    train, test = digits()
    workers = staleness + 1
    rounds = math.ceil(epochs * (len(train) // size) / workers)
    stream = chain.from_iterable(minibatches(train, size, seed=seed, epoch=e) for e in count())
    batches = [concatenation(list(islice(stream, workers))) for _ in range(rounds)]

    def work(comm: Any) -> tuple[State, dict[int, int]]:
        backend = ParameterServer(comm, stale_rate=stale_rate)
        model = backend.place(network(seed))
        method = optim.SGD(model.parameters(), lr)

        def loss(out: Any, y: Any) -> Any:
            comm.compute(1.0)
            return ops.cross_entropy(out, y)

        with np.errstate(over="ignore", invalid="ignore"):
            for batch in batches:
                method.zero_grad()
                backend.step(model, batch, loss)
                backend.update(model, method)
            backend.finalize(model)
        return model.state_dict(), dict(backend.staleness_counts)

    with threadpool_limits(1):
        try:
            state, ages = VirtualCluster(workers + 1, Link(0.0)).run(work)[0]
        except FloatingPointError:
            return math.inf, 0.0
        expected = {**dict.fromkeys(range(staleness), 1), staleness: rounds * workers - staleness}
        if ages != expected:
            raise RuntimeError(
                f"gradients had the ages {ages}, not {expected}; the workers did not take turns"
            )
        return quality(state, train, test)


def two_numbers(
    seed: int, *, feedback: bool, slope: float = 0.5, lr: float = 0.01, steps: int = 2000
) -> Result:
    """f(x) = slope |x1 + x2| + |x1 - x2| by the scaled sign, from a drawn start; f at the end, no accuracy.

    Wherever x1 is not x2, the sign of the gradient is (1, -1) or (-1, 1): without feedback x1 + x2 stays what
    it was (Karimireddy et al. 2019, counterexample 2).
    """
    start = np.random.default_rng(seed).uniform(1, 2, (1, 2))
    batch = Batch(np.array([[slope, slope], [1.0, -1.0]]), np.zeros(2))

    def f(out: Any, y: Any) -> Any:
        return abs(out).sum()

    def work(comm: Any) -> float:
        backend = Compressed(comm, compress="scaled-sign", feedback=feedback)
        model = nn.Linear(2, 1, bias=False, rng=np.random.default_rng(seed), dtype=np.float64)
        model.load_state_dict({"weight": start})
        model = backend.place(model)
        method = optim.SGD(model.parameters(), lr)
        for _ in range(steps):
            method.zero_grad()
            backend.step(model, batch, f)
            backend.update(model, method)
        return f(model(batch.x), batch.y).item()

    return run_ranks(1, work)[0], math.nan


def digits() -> tuple[Batch, Batch]:
    """4,000 samples to learn from and 1,000 to test on, as rows of 784 numbers in [0, 1]."""
    batch = mnist.load("mnist5k").train
    order = np.random.default_rng(0).permutation(len(batch))
    shuffled = Batch(batch.x[order].reshape(len(batch), -1), batch.y[order])
    return shuffled[:4000], shuffled[4000:]


def network(seed: int) -> nn.Sequential:
    """784-128-10 with ReLU; weights of variance 2 / n_in, biases 0."""
    rng = np.random.default_rng(seed)
    layers = [nn.Linear(784, 128, rng=rng), nn.Linear(128, 10, rng=rng)]
    for layer, (n_in, n_out) in zip(layers, ((784, 128), (128, 10)), strict=True):
        drawn = rng.normal(0, (2 / n_in) ** 0.5, (n_out, n_in))
        layer.load_state_dict({"weight": drawn, "bias": np.zeros(n_out)})
    return nn.Sequential(layers[0], nn.ReLU(), layers[1])


def concatenation(parts: list[Batch]) -> Batch:
    return Batch(np.concatenate([b.x for b in parts]), np.concatenate([b.y for b in parts]))


def quality(state: State, train: Batch, test: Batch) -> Result:
    model = network(0)
    model.load_state_dict(state)
    with np.errstate(over="ignore", invalid="ignore"):
        loss = ops.cross_entropy(model(train.x), train.y).item()
        return (loss if math.isfinite(loss) else math.inf), accuracy(model, test)
