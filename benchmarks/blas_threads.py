"""What a second BLAS thread gains a serial step, and what it costs beside other programs.

python benchmarks/blas_threads.py [--busy N] [--rounds N]

Steps with one and with two threads take turns; a figure is the median of the rounds. Afterwards the same
beside N busy processes (default: one for each core), which this program starts and ends.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from threadpoolctl import threadpool_limits

from backends.process.cores import cores
from minigrad import Tape, Tensor
from minigrad.models import find_net
from minigrad.optim import SGD

CASES = {("mlp", 64): 60, ("mlp", 1024): 10, ("lenet", 64): 10, ("lenet", 1024): 1, ("vgg", 64): 2}  # steps
THREADS = (1, 2)


def step_of(name: str, batch: int):
    """A training step of the net on random images."""
    net, rng = find_net(name), np.random.default_rng(0)
    model = net.build(rng)
    x = Tensor(rng.standard_normal((batch, 1, 28, 28), np.float32))
    labels, optimizer = rng.integers(0, 10, batch), SGD(model.parameters(), lr=0.01)

    def step() -> None:
        with Tape():
            loss = net.loss(model(x), labels)
        loss.backward()
        optimizer.step()
        for p in model.parameters():
            p.grad = None

    return step


def milliseconds(name: str, batch: int, rounds: int) -> dict[int, float]:
    """The median time of a step in ms, by the number of threads."""
    step, steps = step_of(name, batch), CASES[name, batch]
    times: dict[int, list[float]] = {threads: [] for threads in THREADS}
    for _ in range(rounds):
        for threads, record in times.items():
            with threadpool_limits(threads):
                step()
                start = time.perf_counter()
                for _ in range(steps):
                    step()
                record.append((time.perf_counter() - start) / steps)
    return {threads: 1e3 * float(np.median(record)) for threads, record in times.items()}


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """Other programs that compute all the time."""
    line = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(line) for _ in range(processes)]
    try:
        yield
    finally:
        for process in others:
            process.kill()
            process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description="What a second BLAS thread gains, and costs.")
    parser.add_argument("--busy", type=int, default=cores(), help="number of busy processes (default: cores)")
    parser.add_argument("--rounds", type=int, default=7, help="number of rounds (default: 7)")
    arguments = parser.parse_args()
    for processes in (0, arguments.busy):
        with busy(processes):
            for name, batch in CASES:
                one, two = milliseconds(name, batch, arguments.rounds).values()
                print(
                    f"{processes} busy processes, {name:6} batch {batch:4}: {one:7.2f} ms with one thread, "
                    f"{two:7.2f} ms with two, {two / one:.2f} of it",
                    flush=True,
                )


if __name__ == "__main__":
    main()
