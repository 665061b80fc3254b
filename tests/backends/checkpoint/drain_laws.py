"""Laws of backends/checkpoint/training_checkpoints.py: what a checkpoint holds of strategies whose
messages are on their way between two steps.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from minigrad_course.machines.virtual_cluster import VirtualCluster

from backends.checkpoint.training_checkpoints import TrainingCheckpoints
from backends.comm.collectives import barrier
from backends.comm.collectives.link import Link
from backends.comm.communicator import Communicator
from backends.laws import distances
from minigrad import nn, optim
from minigrad.data import Batch, shares
from minigrad.ops import cross_entropy
from minigrad.serial import Serial
from minigrad.tape import current_tape
from minigrad.tensor import Tensor
from tests.backends.checkpoint.resume_laws import Layout, MakeOptimizer, training
from tests.nets import Build


def cluster(*slowness: float) -> Callable[[int, Callable[[Communicator], Any]], list[Any]]:
    """Runs a program on a virtual clock, on which ranks compute that much slower; messages take no time."""
    return lambda ranks, work: VirtualCluster(ranks, Link(0.0), slowness=dict(enumerate(slowness))).run(work)


def counting(rng: np.random.Generator) -> nn.Module:
    """A layer whose weights begin at 0."""
    layer = nn.Linear(4, 2, rng=rng)
    for parameter in layer.parameters():
        parameter.data[...] = 0
    return layer


def total(out: Tensor, y: Any) -> Tensor:
    """The sum of all outputs: its gradient is the sum of the samples, whatever the weights are."""
    return out.sum()


def every_sample_counts_once(layout: Layout, sizes: Sequence[int], k: int) -> None:
    """Assert that the weights are minus the sum of the samples so far: none is lost, none counts twice.

    In whole numbers, so exactly; in the checkpoint after ``k`` steps, and at the end of the training that
    resumes it. ``layout`` applies each gradient by itself, at the whole rate.
    """
    rng = np.random.default_rng(1)
    batches = [Batch(rng.integers(-9, 9, (n, 4)).astype(np.float64), np.zeros(n, int)) for n in sizes]
    one = lambda parameters: optim.SGD(parameters, 1.0)  # noqa: E731
    with tempfile.TemporaryDirectory() as folder:
        first = training(layout, counting, one, batches[:k], Path(folder), loss_fn=total, plateaus=False)
        rest = training(
            layout, counting, one, batches[k:], Path(folder), resume=True, loss_fn=total, plateaus=False
        )
    for runs, batches_of_runs in ((first, batches[:k]), (rest, batches)):
        samples = np.concatenate([np.zeros((0, 4)), *(batch.x for batch in batches_of_runs)])
        for rank, run in enumerate(runs):
            where = f"after {len(batches_of_runs)} steps on rank {rank}"
            weight, bias = run.arrays["model/weight"], run.arrays["model/bias"]
            assert np.array_equal(weight, np.tile(-samples.sum(axis=0), (2, 1))), f"{where}: {weight}"
            assert np.array_equal(bias, [-len(samples)] * 2), f"{where}: {len(samples)} samples, {bias}"
            own = run.facts["own"]["values"]
            workers = layout.ranks - len(own["versions"])
            pushes = sum(min(workers, len(batch)) for batch in batches_of_runs)
            for name in {"applied", "staleness"} & own.keys():
                gradients = sum(number for _, number in own[name])
                assert gradients == pushes, f"{where}: {name} counts {gradients} gradients of {pushes}"


def is_serial_on_the_listed_contributors(
    layout: Layout, build: Build, make: MakeOptimizer, batches: Sequence[Batch], k: int
) -> None:
    """Assert that a resumed run is the serial one on the samples of the contributors that rank 0 has listed.

    Of all steps, also those before it was resumed: so no gradient counts twice, and none that was dropped.
    """
    with tempfile.TemporaryDirectory() as folder:
        training(layout, build, make, batches[:k], Path(folder), plateaus=False)
        runs = training(layout, build, make, batches[k:], Path(folder), resume=True, plateaus=False)
    updates = runs[0].facts["own"]["values"]["updates"]
    assert [version for version, *_ in updates] == list(range(len(batches))), f"updates {updates}"
    model = build(np.random.default_rng(0)).to(dtype=np.float64)
    optimizer = make(model.parameters())
    for batch, (_, contributors, dropped) in zip(batches, updates, strict=True):
        assert len({*contributors, *dropped}) == len(contributors) + len(dropped), f"updates {updates}"
        parts = dict(enumerate(shares(len(batch), layout.ranks - 1), 1))
        samples = np.concatenate([np.arange(len(batch))[parts[rank]] for rank in sorted(contributors)])
        optimizer.zero_grad()
        Serial().step(model, batch[samples], cross_entropy)
        optimizer.step()
    for rank, run in enumerate(runs):
        whole = {f"model/{name}": array for name, array in model.state_dict().items()}
        for name, (_, relative) in distances(whole, run.arrays).items():
            assert relative <= 1e-11, f"rank {rank}: {name} differs by {relative:.1e}"


def another_layout_holds_what_was_saved(
    before: Layout, after: Layout, build: Build, make: MakeOptimizer, batches: Sequence[Batch]
) -> None:
    """Assert that another layout that resumes, and takes no step, holds the same bits as the checkpoint."""
    with tempfile.TemporaryDirectory() as folder:
        saved = training(before, build, make, batches, Path(folder))[0]
        runs = training(after, build, make, [], Path(folder), resume=True, same_layout=False)
    for rank, run in enumerate(runs):
        assert run.facts["optimizer"] == saved.facts["optimizer"], f"rank {rank}: {run.facts}"
        assert run.arrays.keys() == saved.arrays.keys(), run.arrays.keys() ^ saved.arrays.keys()
        for name, array in saved.arrays.items():
            assert array.tobytes() == run.arrays[name].tobytes(), f"rank {rank}: {name} differs"


def nobody_waits_for_a_late_rank(layout: Layout, batches: Sequence[Batch], every: int, bound: float) -> None:
    """Assert that rank 0 ends ``batches`` by ``bound`` s on a virtual clock, saving after ``every`` steps.

    Between these steps the ranks do not wait to hear whether the training is to stop.
    """

    def work(comm: Communicator) -> float:
        checkpoints = TrainingCheckpoints(
            folder, comm, every=every, steps=len(batches), say=lambda text: None
        )
        backend = layout.backend(comm)
        model = backend.place(counting(np.random.default_rng(0)).to(dtype=np.float64))
        optimizer, end = optim.SGD(model.parameters(), 0.1), 0.0
        history = checkpoints.load_rest(backend, model, optimizer)

        def loss(out: Tensor, y: Any) -> Tensor:
            if current_tape.get() is not None:  # in training, and not where it is checked
                comm.compute(1.0)
            return total(out, y)

        for batch in batches:
            optimizer.zero_grad()
            history.losses.append(backend.step(model, batch, loss))
            backend.update(model, optimizer)
            end = comm.time()
            checkpoints.write()
        barrier(comm)
        checkpoints.close()
        return end

    with tempfile.TemporaryDirectory() as folder:
        end = layout.run(layout.ranks, work)[0]
    assert end <= bound, f"rank 0 ends after {end:g} s, allowed are {bound:g} s"
