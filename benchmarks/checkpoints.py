"""What checkpoints cost: training with a save every 20 steps against training without, in turns.

python benchmarks/checkpoints.py                    # W4, 200 steps, serial; one BLAS thread
python benchmarks/checkpoints.py --endurance        # 10,000 steps with a save every 100: what stays behind
python benchmarks/checkpoints.py --agreement        # what it costs that all ranks can stop after one step
minigrad run -n 2 benchmarks/checkpoints.py --agreement    # the same, on two processes instead of two threads
"""

from __future__ import annotations

import os
import tempfile
import threading
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Annotated

import numpy as np
import typer
from threadpoolctl import threadpool_limits

from backends import run_on_ranks
from backends.checkpoint import Checkpoints
from backends.checkpoint.stop_agreement import StopAgreement
from backends.checkpoint.training_state import gather_state
from backends.comm import Communicator, run_ranks
from backends.data_parallel import DataParallel
from minigrad import nn, ops, optim
from minigrad.data import Batch
from minigrad.serial import Serial


def w4(rng: np.random.Generator) -> nn.Sequential:
    """The VGG-like network of the other benchmarks."""
    return nn.Sequential(
        *(nn.Conv2d(3, 32, 3, padding=1, rng=rng), nn.ReLU()),
        *(nn.Conv2d(32, 32, 3, padding=1, rng=rng), nn.MaxPool2d(2), nn.ReLU()),
        *(nn.Conv2d(32, 64, 3, padding=1, rng=rng), nn.ReLU()),
        *(nn.Conv2d(64, 64, 3, padding=1, rng=rng), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten()),
        *(nn.Linear(4096, 256, rng=rng), nn.ReLU(), nn.Linear(256, 10, rng=rng)),
    )


def small(rng: np.random.Generator) -> nn.Sequential:
    return nn.Sequential(nn.Linear(20, 16, rng=rng), nn.Tanh(), nn.Linear(16, 10, rng=rng))


class Run:
    """A training whose steps are timed, and the checkpoints that it writes."""

    def __init__(self, comm: Communicator, build, shape: tuple[int, ...], folder: Path):
        rng = np.random.default_rng(0)
        self.comm, self.backend, self.model = comm, Serial(), build(rng)
        self.batch = Batch(rng.standard_normal(shape, np.float32), rng.integers(0, 10, shape[0]))
        self.optimizer = optim.SGD(self.model.parameters(), 1e-3, momentum=0.9)
        self.files = Checkpoints(folder, comm)

    def seconds(self, steps: int, every: int | None) -> float:
        start = perf_counter()
        for step in range(1, steps + 1):
            self.optimizer.zero_grad()
            self.backend.step(self.model, self.batch, ops.cross_entropy)
            self.backend.update(self.model, self.optimizer)
            if every is not None and step % every == 0:
                self.files.write(step, *gather_state(self.comm, self.backend, self.model, self.optimizer))
        self.files.wait()
        return perf_counter() - start


def agreement_cost(comm: Communicator, rounds: int) -> None:
    """Print the microseconds that a step takes with an agreement after it, and without, in turns."""
    rng = np.random.default_rng(0)
    backend, model = DataParallel(comm), small(rng)
    model = backend.place(model)
    batch = Batch(rng.standard_normal((64, 20), np.float32), rng.integers(0, 10, 64))
    optimizer = optim.SGD(model.parameters(), 1e-3, momentum=0.9)
    times: dict[bool, list[float]] = {False: [], True: []}
    for i in range(100 * rounds):
        agreement = StopAgreement(comm) if i % 2 else None
        for step in range(20):
            start = perf_counter()
            optimizer.zero_grad()
            backend.step(model, batch, ops.cross_entropy)
            backend.update(model, optimizer)
            if agreement is not None:
                agreement.after_step(None, last=step == 19)
            times[agreement is not None].append(1e6 * (perf_counter() - start))
    if comm.rank == 0:
        without, agreed = median(times[False]), median(times[True])
        print(
            f"a step of {comm.size} ranks: {without:.0f} us, with the agreement {agreed:.0f} us "
            f"(medians of {len(times[True]):,})"
        )
    backend.close()


def left() -> tuple[int, int, float]:
    """Open descriptors, threads, and megabytes of this process."""
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])
    return len(os.listdir("/proc/self/fd")), threading.active_count(), pages * os.sysconf("SC_PAGESIZE") / 1e6


def main(
    rounds: Annotated[int, typer.Option(min=1)] = 5,
    endurance: Annotated[bool, typer.Option("--endurance", help="10,000 steps instead")] = False,
    agreement: Annotated[bool, typer.Option("--agreement", help="the cost of StopAgreement")] = False,
) -> None:
    """Print the median share of the time that saving adds, or what 100 saves leave behind."""
    if agreement:
        run_on_ranks(lambda comm: agreement_cost(comm, rounds))
        return

    def cost(comm: Communicator) -> None:
        run = Run(comm, w4, (64, 3, 32, 32), Path(folder))
        run.seconds(20, 20)
        shares = []
        for i in range(rounds):
            times = {every: run.seconds(200, every) for every in ((None, 20) if i % 2 else (20, None))}
            shares.append(times[20] / times[None] - 1)
            print(f"   {times[None]:6.2f} s without, {times[20]:6.2f} s with 10 saves: {shares[-1]:+.1%}")
        print(f"saving W4 every 20 steps of 200 costs {median(shares):+.1%} (median of {rounds} rounds)")

    def last(comm: Communicator) -> None:
        run = Run(comm, small, (8, 20), Path(folder))
        for done in range(1000, 11_000, 1000):
            run.seconds(1000, 100)
            print("after {:6,} steps: {} descriptors, {} threads, {:.1f} MB".format(done, *left()))

    Path("runs").mkdir(exist_ok=True)  # this disk, not that of temporary files, which may be memory
    with tempfile.TemporaryDirectory(dir="runs") as folder, threadpool_limits(1):
        run_ranks(1, last if endurance else cost)


if __name__ == "__main__":
    typer.run(main)
