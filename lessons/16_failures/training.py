"""Trainings that fail: one on a virtual clock, whose hosts fail at drawn times, and one whose rank fails."""

from __future__ import annotations

import json
from typing import NamedTuple

import numpy as np
from minigrad_course.crashes.recorded_disk import RecordedDisk
from minigrad_course.machines.virtual_cluster import VirtualCluster
from safetensors.numpy import load, save

from backends.checkpoint import Checkpoints
from backends.checkpoint.checkpoints import shared_out
from backends.checkpoint.training_state import gather_state, load_model_state, load_state
from backends.data_parallel import DataParallel, Sharded
from minigrad import ops
from minigrad.data import Batch
from minigrad.models import mlp
from minigrad.nn import Linear, Sequential, Tanh
from minigrad.optim import Adam

STEP = 0.25  # of the time that a save takes


class Failure(RuntimeError):
    """A host fails."""


class Run(NamedTuple):
    """A training with failures: its weights, steps computed, failures, and time on the virtual clock."""

    weights: dict[str, np.ndarray]
    steps: int
    failures: int
    time: float


def train_with_failures(steps, interval, lifetimes, folder):
    """Train with a checkpoint after each ``interval`` steps, on hosts that live for these times.

    The unit of time is one save. After a failure a new host begins, from the newest checkpoint.
    """
    disk, time, computed = RecordedDisk(), 0.0, 0
    for failures, lifetime in enumerate(lifetimes):
        done = []

        def work(comm, lifetime=lifetime, done=done):
            files, backend, model = Checkpoints(folder, comm, disk=disk), DataParallel(comm), small_network()
            generation, arrays, _ = files.newest()
            load_model_state(model, arrays)
            model = backend.place(model)
            optimizer = Adam(model.parameters(), 0.01)
            start = 0 if generation is None else generation.step
            if generation is not None:
                load_state(comm, backend, model, optimizer, arrays, generation.facts, same_layout=True)
            for step in range(start, steps):
                comm.compute(STEP)
                stops_at(comm, lifetime)
                optimizer.zero_grad()
                backend.step(model, small_batch(step), ops.cross_entropy)
                backend.update(model, optimizer)
                done.append(step)
                if (step + 1) % interval == 0 and step + 1 < steps:
                    comm.compute(1.0)
                    stops_at(comm, lifetime)
                    files.write(step + 1, *gather_state(comm, backend, model, optimizer))
                    files.wait()
            return backend.state.full_parameters(model)

        cluster = VirtualCluster(1)
        try:
            weights = cluster.run(work)[0]
        except Failure:
            weights = None
        computed += len(done)
        time += lifetime if weights is None else cluster.seconds
        if weights is not None:
            return Run(weights, computed, failures, time)
    raise RuntimeError("more failures than lifetimes were drawn")


class Clock(NamedTuple):
    """What the clock of a training with failures shows: steps computed, failures, and the time."""

    steps: int
    failures: int
    time: float


def clock_with_failures(steps, interval, lifetimes):
    """The Clock of ``train_with_failures``, from the times alone."""
    time, computed, saved = 0.0, 0, 0
    for failures, lifetime in enumerate(lifetimes):
        now, done = STEP, saved
        while now <= lifetime:  # a step is computed
            done, computed = done + 1, computed + 1
            if done == steps:
                return Clock(computed, failures, time + now)
            if done % interval == 0:
                now += 1.0
                if now > lifetime:
                    break
                saved = done
            now += STEP
        time += float(lifetime)
    raise RuntimeError("more failures than lifetimes were drawn")


def stops_at(comm, lifetime):
    """Raise Failure if this host's lifetime is over."""
    if comm.time() > lifetime:
        raise Failure


def small_network():
    rng = np.random.default_rng(0)
    return Sequential(Linear(8, 16, rng=rng), Tanh(), Linear(16, 4, rng=rng)).to(dtype=np.float64)


def small_batch(step):
    rng = np.random.default_rng(step)
    return Batch(rng.normal(size=(8, 8)), rng.integers(0, 4, 8))


# Four ranks, one of which fails


SAVES_EVERY = 4  # steps
PATTERNS = np.random.default_rng(10).normal(size=(10, 1, 28, 28))


def noisy_patterns(step, samples=24):
    """A batch: each class has a pattern, and a sample is the pattern of its class with much noise."""
    rng = np.random.default_rng(step)
    classes = rng.integers(0, 10, samples)
    return Batch(0.1 * PATTERNS[classes] + 0.5 * rng.normal(size=(samples, 1, 28, 28)), classes)


BATCHES = [noisy_patterns(step) for step in range(18)]


def piece_of(comm, backend, model, optimizer):
    """This rank's share of the serial run's state, as bytes."""
    arrays, facts, _ = gather_state(comm, backend, model, optimizer)
    mine = {name: arrays[name] for name in shared_out(arrays, comm.size)[comm.rank]}
    return json.dumps(facts).encode() + b"\n" + save(mine)


def state_in(pieces):
    """The arrays and facts of the serial run, from the pieces of all ranks."""
    arrays, facts = {}, []
    for piece in pieces:
        text, _, content = piece.partition(b"\n")
        arrays |= load(content)
        facts.append(json.loads(text))
    return arrays, {**(facts[0] if facts else {}), "of each rank": [fact["own"] for fact in facts]}


def train(comm, memory, losses, *, resumes=False, lost=None):
    """Train on BATCHES with ZeRO stage 2 and Adam, and save in ``memory``, if there is one.

    If it ``resumes``, it begins from the newest generation there. Rank 0 puts the loss of each step into
    ``losses``. ``lost`` is (rank, step) of a rank that fails in the middle of a step, after its forward pass.
    Returns the first step, and the weights.
    """
    model, backend = mlp(np.random.default_rng(0)).to(dtype=np.float64), Sharded(comm, stage=2)
    start, pieces = memory.restore(comm) if resumes else (0, [])
    arrays, facts = state_in(pieces)
    load_model_state(model, arrays)
    model = backend.place(model)
    optimizer = Adam(model.parameters(), 0.003)
    if resumes:
        load_state(comm, backend, model, optimizer, arrays, facts, same_layout=False)
    for step in range(start, len(BATCHES)):

        def loss_fn(scores, labels, step=step):
            if lost == (comm.rank, step):
                raise Failure
            return ops.cross_entropy(scores, labels)

        optimizer.zero_grad()
        loss = backend.step(model, BATCHES[step], loss_fn)
        backend.update(model, optimizer)
        if comm.rank == 0:
            losses[step] = loss
        if memory is not None and (step + 1) % SAVES_EVERY == 0:
            memory.save(comm, step + 1, piece_of(comm, backend, model, optimizer))
    return start, backend.state.full_parameters(model)
