"""The first tensor of a parallel training step that differs from the serial run, and what agreed before it.

Each rank compares what it holds with its part of the serial run's tensor: rows by the samples' places,
columns by the tokens of the pass, features, channels and tiles by the shards of the tensor. In the order in
which the serial run computes them, the first one that differs shows the operation that is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from minigrad import optim
from minigrad.data import Batch
from minigrad.forward_pass import ForwardPass
from minigrad.module import Module
from minigrad.serial import Serial
from minigrad.strategy import Strategy
from minigrad.testing import DEVICE
from minigrad.work import Loss

from .comm.allgather_json import allgather_json
from .comm.collectives import allreduce
from .comm.communicator import Communicator
from .laws import LEAST_SCALE, Build, MakeOptimizer, MakeStrategy, bound_for, distance, distances, placed
from .recording import BACKWARD, FORWARD, Event, Port, Record, Recording


@dataclass(frozen=True)
class FirstDifference:
    """Where a parallel step first differs from the serial one.

    ``what`` says it in words, and ``agreed`` what was equal before it, None where that is nothing.
    ``direction`` is "placement", "forward", "backward", "parameters", "loss", "state" or "update", in this
    order, and ``name`` that of the layer, whose ``end`` is "input" or "output", or of the array. ``absolute``
    and ``relative`` are the largest difference there, on ``rank``, in the micro-batch ``micro`` of its own.
    """

    direction: str
    name: str
    end: str
    what: str
    rank: int
    micro: int | None
    absolute: float
    relative: float
    agreed: str | None = None


@dataclass(frozen=True)
class Comparison:
    """How many tensors of all ranks were compared, how many could not be, and the first that differs."""

    compared: int
    left_out: int
    first: FirstDifference | None


def first_difference(
    strategy: MakeStrategy,
    comm: Communicator,
    build: Build,
    loss_fn: Loss,
    batch: Batch,
    *,
    dtype: Any = np.float64,
    device: str = DEVICE,
    seed: int = 0,
    optimizer: MakeOptimizer = lambda parameters: optim.SGD(parameters, 0.1, momentum=0.9),
    serial: Strategy | None = None,
    oracle: Build | None = None,
) -> Comparison:
    """Take a step by ``strategy`` and one serially, and find the first tensor that differs.

    Settings and the bound are those of ``laws.trains_like_serial``. Differences are relative to a tensor's
    largest element, and at least to a tenth of that of all activations, or of all their gradients.
    Collective: every rank gets the comparison.
    """
    backend, model, reference = placed(strategy, comm, build, dtype, device, seed, oracle or build)
    batch, bound = batch.to(device), bound_for(np.dtype(dtype))
    arrays = Arrays(comm, backend, model, reference, bound)
    first = arrays.of_model("placement", "when the model is placed")
    own = copy(serial or Serial())  # which counts its steps, and ranks on threads may share it
    steps, recordings, losses = ((own, reference), (backend, model)), [], []
    for run, trained in steps:
        recordings.append(Recording(trained))
        with ForwardPass(None, batch.places, observer=recordings[-1]):
            losses.append(run.step(trained, batch, loss_fn))
    tensors = SerialTensors(recordings[0], len(batch))
    ranks = [[Verdict(*v) for v in rows] for rows in allgather_json(comm, verdicts(tensors, recordings[1]))]
    first = first or unshared(comm, tensors, recordings[1]) or in_layers(ranks, tensors, bound)
    first = first or arrays.of_step(recordings, losses) or arrays.of_model("state", "after the step")
    for run, trained in steps:
        run.update(trained, optimizer(trained.parameters()))
    backend.finalize(model)
    first = first or arrays.of_model("update", "after the update")
    backend.close()
    left_out = sum(v.relative is None for rows in ranks for v in rows)
    compared = sum(map(len, ranks)) - left_out + len(reference.parameters())
    return Comparison(compared, left_out, first)


class SerialTensors:
    """What the serial run recorded, put together over its micro-batches, for ``n`` samples."""

    def __init__(self, recording: Recording, n: int):
        self.records, self.kinds = recording.records, recording.kinds
        self.events = sorted(recording.order, key=lambda event: event[0] == BACKWARD)
        self.whole: dict[Event, np.ndarray] = {}
        largest = {FORWARD: 0.0, BACKWARD: 0.0}
        for (port, places), record in self.records.items():
            for direction, x in record.arrays.items():
                if x.dtype.kind == "f":
                    largest[direction] = max(largest[direction], float(np.abs(x).max(initial=0.0)))
                if x.shape[:1] == (len(places),):
                    whole = np.zeros((n, *x.shape[1:]), x.dtype)
                    self.whole.setdefault((direction, port), whole)[list(places)] = x
        self.least = {direction: LEAST_SCALE * x for direction, x in largest.items()}

    def part(self, direction: str, record: Record) -> np.ndarray | None:
        """What a rank's record should hold; None where that cannot be told."""
        same = self.records.get((record.port, record.places))
        whole = self.whole.get((direction, record.port))
        if same is not None:
            whole = same.arrays.get(direction)
        elif whole is not None:
            whole = whole[list(record.places)]
        try:
            part = None if whole is None else record.part_of(whole)
        except (IndexError, ValueError):  # a tensor without these axes
            return None
        return part if part is None or part.shape == record.arrays[FORWARD].shape else None


class Verdict(NamedTuple):
    """How far one tensor of a rank is from the serial one; ``relative`` is None where that cannot be told."""

    direction: str
    port: Sequence[Any]
    micro: int
    absolute: float
    relative: float | None


def verdicts(tensors: SerialTensors, recording: Recording) -> list[Verdict]:
    """A verdict for each tensor that one rank recorded, and that has elements."""
    parts = sorted({places for _, places in recording.records if places})
    rows = []
    for (port, places), record in recording.records.items():
        for direction in (FORWARD, BACKWARD):
            expected, actual = tensors.part(direction, record), record.arrays.get(direction)
            micro = parts.index(places) if places else 0
            if expected is None and actual is not None:
                rows.append(Verdict(direction, port, micro, 0.0, None))
            elif expected is not None and (expected.size or actual is not None):
                rows.append(
                    Verdict(direction, port, micro, *distance(expected, actual, tensors.least[direction]))
                )
    return rows


def unshared(comm: Communicator, tensors: SerialTensors, recording: Recording) -> FirstDifference | None:
    """The first tensor of the step, unless each of its elements is on as many ranks as the others."""
    whole, port = tensors.whole.get(tensors.events[0]), tensors.events[0][1]
    counts = np.zeros(0 if whole is None else whole.shape)
    for record in recording.records.values():
        if whole is not None and record.port == port and tensors.part(FORWARD, record) is not None:
            numbers = np.arange(whole.size).reshape(whole.shape)[list(record.places)]
            counts.reshape(-1)[record.part_of(numbers)] += 1
    counts = allreduce(comm, counts)
    if not counts.size or counts.min() == counts.max():
        return None
    what = f"the samples or tokens that ranks take: {port} has elements on {counts.min():.0f} ranks, and "
    what += f"others on {counts.max():.0f}"
    return FirstDifference(FORWARD, port.layer, port.end, what, 0, None, 0.0, 0.0)


def in_layers(
    ranks: Sequence[Sequence[Verdict]], tensors: SerialTensors, bound: float
) -> FirstDifference | None:
    """The first of the layers' tensors that differs on a rank."""
    by_event: dict[Event, list[tuple[float, float, int, int]]] = {}
    for rank, rows in enumerate(ranks):
        for v in rows:
            if v.relative is not None:
                differs = v.relative, v.absolute, rank, v.micro
                by_event.setdefault((v.direction, Port(*v.port)), []).append(differs)
    agreed = None
    for event in tensors.events:
        relative, absolute, rank, micro = max(by_event.get(event, [(0.0, 0.0, 0, 0)]))
        direction, port = event
        if not relative <= bound:
            layer = f"layer {port.layer}" if port.layer else "the model"
            what = words(event, f"{layer} ({tensors.kinds[port.layer]})", agreed)
            return FirstDifference(
                direction, port.layer, port.end, what, rank, micro, absolute, relative, agreed
            )
        if event in by_event:
            agreed = f"gradient of the {port}" if direction == BACKWARD else str(port)
    return None


def words(event: Event, layer: str, agreed: str | None) -> str:
    """The operation that gives the tensor of an event, after the one that ``agreed``."""
    direction, port = event
    if (direction == FORWARD) == port.end.startswith("output"):
        return f"the {direction} of {layer}"
    if direction == FORWARD:
        return f"what leads to the {port.end} of {layer}"
    if agreed is None or not agreed.startswith("gradient"):
        return f"the loss or its weight, or what leads its gradient to {layer}"
    return f"what leads the gradient back to {layer}"


class Arrays(NamedTuple):
    """The arrays of the model that a strategy placed, and those of the serial run, its ``reference``."""

    comm: Communicator
    backend: Strategy
    model: Module
    reference: Module
    bound: float

    def first(
        self, direction: str, expected: Mapping[str, Any], actual: Any, words: Callable[[str], str]
    ) -> FirstDifference | None:
        """The first array of ``expected`` that differs on a rank; ``words`` of its name say what that is."""
        ranks = allgather_json(self.comm, distances(expected, actual))
        for name in expected:
            relative, absolute, rank = max((d[name][1], d[name][0], r) for r, d in enumerate(ranks))
            if not relative <= self.bound:
                return FirstDifference(direction, name, "", words(name), rank, None, absolute, relative)
        return None

    def of_model(self, direction: str, when: str) -> FirstDifference | None:
        """The first parameter, or other array of the model, whose values differ."""
        serial, state = Serial().state, self.backend.state
        expected = serial.full_parameters(self.reference) | serial.full_state(self.reference)
        actual = state.full_parameters(self.model) | state.full_state(self.model)
        return self.first(direction, expected, actual, lambda name: f"the values of {name} {when}")

    def of_step(self, recordings: Sequence[Recording], losses: Sequence[float]) -> FirstDifference | None:
        """The first parameter, in the order of backward, whose gradient differs, or the loss."""
        names = {p: name for name, p in self.reference.named_parameters().items()}
        gradients = Serial().state.full_gradients(self.reference)
        expected = {names[p]: gradients[names[p]] for p in recordings[0].gradients} | gradients
        terms = self.sums_of_terms(recordings[1])

        def words(name: str) -> str:
            add_up = is_multiple(terms.get(name), gradients[name], self.bound)
            if add_up is None:
                return f"the gradient of {name}"
            when, do = ("after", "") if add_up else ("before", "do not ")
            return f"the gradient of {name}, {when} ranks reduce it: their terms {do}add up to the serial one"

        actual = self.backend.state.full_gradients(self.model)
        loss, own = ({"loss": np.array(value)} for value in losses)
        first = self.first("parameters", expected, actual, words)
        return first or self.first("loss", loss, own, lambda _: "the loss of the step")

    def sums_of_terms(self, recording: Recording) -> dict[str, tuple[np.ndarray, int]]:
        """The sums over ranks of the gradients before a reduction, and of how many terms, by serial names.

        A rank's part stands where it is in the whole one. Parameters of which a rank holds parts of another
        form are left out.
        """
        first = {name: names[0] for names in self.reference.tied_parameters() for name in names}
        whole, unclear = self.reference.named_parameters(), list[str]()
        numbers = {name: np.arange(p.size).reshape(p.shape) for name, p in whole.items()}
        places = self.backend.state.shard(self.model, numbers)
        sums = {name: np.zeros((2, p.size), p.dtype) for name, p in whole.items()}
        for own, parameter in self.model.named_parameters().items():
            name, g = first.get(own, own), recording.gradients.get(parameter)
            if g is None:
                continue
            place = numbers[name] if g.shape == whole[name].shape else places.get(own)
            if place is None or place.shape != g.shape:
                unclear.append(name)
                continue
            sums[name][:, place.reshape(-1)] += np.stack([g.reshape(-1), np.ones(g.size)])
        left_out = {name for names in allgather_json(self.comm, unclear) for name in names}
        totals = {name: allreduce(self.comm, x) for name, x in sums.items() if name not in left_out}
        return {
            name: (x[0].reshape(whole[name].shape), int(x[1].min())) for name, x in totals.items() if x.size
        }


def is_multiple(
    terms: tuple[np.ndarray, int] | None, gradient: np.ndarray | None, bound: float
) -> bool | None:
    """Whether a sum over ranks is a gradient as many times as ranks hold it; None where this is not known."""
    if terms is None or gradient is None or not (square := float(np.vdot(gradient, gradient))):
        return None
    total, most = terms
    times = round(float(np.vdot(gradient, total)) / square) if np.isfinite(total).all() else 0
    return 0 < times <= max(most, 1) and distance(times * gradient, total, 0.0)[1] <= bound
