"""All ranks work at the same time, each on another micro-batch, in the order of a schedule.

Lecture section: pipelining. Lesson: 13_pipeline.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from minigrad.data import Batch
from minigrad.declaration import Declaration
from minigrad.device import array_module, unflatten
from minigrad.lookup import at_least_one
from minigrad.module import Module, Sequential, is_sequential
from minigrad.optim import ParametersElsewhere
from minigrad.placed_state import PlacedState, Values
from minigrad.strategy import Strategy
from minigrad.tape import current_tape
from minigrad.tensor import Parameter, Tensor
from minigrad.work import ForwardBackward, Loss, Work, forward_backward_pass

from ..comm.collectives import allgather, allreduce, broadcast
from ..comm.communicator import Communicator
from ..consistency import broadcast_model, check_same_batch, check_same_on_all_ranks
from ..partition import bounds_by_bytes, bounds_by_time, check_bounds
from ..placement import Placeholder, TrainedStages, all_gather_named, loss_of_output, refuse_placed, shards_of
from .engine import Engine
from .p2p import PipelineComm
from .schedule import Order, Schedule
from .schedules import find_schedule
from .stages import StageMap, keep_only
from .timetable import Timetable
from .validator import check_schedule


class PipelineState(PlacedState):
    """The state of a model whose stages are on ranks; tied and copied parameters are on several."""

    backend: Pipeline

    def unshard_values(self, model: Module, values: Values) -> Values:
        """All ranks' arrays, by their serial names."""
        stage_map, gathered = self.backend.stage_map, all_gather_named(self.backend.comm, values)
        by_name = {stage_map.serial[name]: value for name, value in gathered.items()}
        return {name: by_name[name] for name in stage_map.used_in if name in by_name}

    def shard_values(self, model: Module, values: Values) -> Values:
        serial = self.backend.stage_map.serial
        mine = model.named_parameters()
        return {name: values[serial[name]] for name, _ in mine if serial[name] in values}

    def global_square_norms(self, model: Module, squares: np.ndarray) -> np.ndarray:
        """This rank's sums, then those of the other ranks' parameters, each once."""
        stage_map = self.backend.stage_map
        counted, rows = set(stage_map.on(self.backend.rank)), [squares]
        for rank, sums in enumerate(allgather(self.backend.comm, squares)):
            new = {name: i for i, name in enumerate(stage_map.on(rank)) if name not in counted}
            counted.update(new)
            rows.append(sums[list(new.values())])
        return np.concatenate(rows)


class Pipeline(Strategy):
    """Consecutive layers on consecutive ranks; the batch passes them in ``micro_batches`` parts.

    ``schedule`` is a schedule, an order, or the name of a schedule. A rank holds ``chunks`` stages of the
    model (by default the schedule's number); stage s is the layers from ``bounds[s]`` to ``bounds[s + 1]``.
    With "time" the slowest stage takes as little time as possible, measured on rank 0 with inputs that are
    like ``sample`` or have this shape, ``batch_size`` of them in a step; that is the default where it is
    given. With "bytes", else the default, the largest stage has as few bytes of parameters as possible. The
    pipelines of a grid are cut alike by time if ``agree_on`` is its communicator. Trains like
    ``Serial(micro_batches)``: a batch-norm's statistics are those of the micro-batches. ``recompute`` keeps
    only each stage's input, and computes the rest again before a backward.

    >>> from backends.comm import run_ranks
    >>> from minigrad import nn
    >>> def stage(comm):
    ...     net = nn.Sequential(nn.Linear(4, 6, rng=0), nn.Linear(6, 2, rng=1))
    ...     return sorted(Pipeline(comm).place(net).named_parameters().keys())
    >>> run_ranks(2, stage)
    [['0.bias', '0.weight'], ['1.bias', '1.weight']]
    """

    declaration, state_class = Declaration(chooses={"bounds": "bounds"}), PipelineState

    def __init__(
        self,
        comm: Communicator,
        schedule: Schedule | Order | str = "1f1b",
        *,
        micro_batches: int = 4,
        chunks: int | None = None,
        bounds: Sequence[int] | str | None = None,
        sample: Sequence[int] | None = None,
        batch_size: int = 64,
        agree_on: Communicator | None = None,
        recompute: bool = False,
    ):
        self.comm, self.rank, self.size = comm, comm.rank, comm.size
        if not isinstance(schedule, Schedule):
            schedule = find_schedule(schedule) if isinstance(schedule, str) else Schedule(schedule)
        self.schedule = schedule
        self.micro_batches = at_least_one("micro_batches", micro_batches)
        self.table: Timetable = check_schedule(self.schedule, self.size, self.micro_batches, chunks)
        self.requested_bounds = bounds if bounds is None or isinstance(bounds, str) else tuple(bounds)
        self.bounds: tuple[int, ...] = ()  # as the model was cut
        self.sample = None if sample is None else tuple(sample)
        self.batch_size = at_least_one("batch_size", batch_size)
        self.agree_on = comm if agree_on is None else agree_on
        self.recompute = recompute
        self.groups: list[tuple[Communicator, list[Tensor]]] = []

    def place(self, model: Module) -> Module:
        """This rank's layers, with rank 0's parameters; placeholders replace the others in ``model``.

        Raises ValueError where ranks have different models or settings, there are more stages than layers,
        bounds do not fit, or a schedule with copies of layers meets running statistics.
        """
        refuse_placed(model, Staged, Placeholder)
        if not is_sequential(model):
            raise ValueError(
                f"only a Sequential can be cut into stages, not {type(model).__name__}, whose layers "
                "may not run in sequence; make it a Sequential, with what belongs together as one layer"
            )
        settings = {"schedule": self.schedule.name, "chunks": self.table.chunks}
        settings |= {"bounds": self.requested_bounds, "micro_batches": self.micro_batches}
        check_same_on_all_ranks(self.comm, model, {**settings, "recompute": self.recompute})
        self.bounds = self.cut(model)
        self.stage_map = StageMap(model, self.table, self.bounds)
        self.stage_map.refuse_copies()
        broadcast_model(self.comm, model)
        by_name = model.named_parameters()
        mine, several = self.stage_map.on(self.rank), self.stage_map.in_several_stages()
        self.groups = []
        for ranks, names in self.stage_map.groups().items():
            group = self.comm.split(int(self.rank in ranks))
            if self.rank in ranks:
                self.groups.append((group, [by_name[name] for name in names]))
        chunks = {
            chunk: keep_only(model, range(self.bounds[stage], self.bounds[stage + 1]))
            for chunk, stage in self.table.stages_of(self.rank).items()
        }
        shared = tuple(by_name[name] for name in several if name in mine and by_name[name].requires_grad)
        p2p = PipelineComm(self.comm, self.table, self.stage_map.first)
        self.engine = Engine(p2p, chunks, shared, self.recompute)
        self.trained = TrainedStages([*chunks.values()])
        model.layers = keep_only(model, self.stage_map.layers_on[self.rank]).layers  # pyright: ignore
        return self.hold(Staged(model, self.engine))

    def cut(self, model: Sequential) -> tuple[int, ...]:
        """The stages' bounds; ValueError unless every stage has a layer."""
        bounds, measurable = self.requested_bounds, self.sample is not None and not shards_of(model)
        check_bounds("bytes" if bounds is None else bounds, self.table.stages, len(model.layers))
        if isinstance(bounds, tuple):
            return bounds
        if bounds == "bytes" or bounds is None and not measurable:
            return bounds_by_bytes(model, self.table.stages)
        if self.sample is None or not measurable:
            raise ValueError(
                "bounds by time need the shape of a sample, and a model whose layers are not split already; "
                'pass sample=, or take bounds by "bytes"'
            )
        rows = -(-self.batch_size // self.micro_batches)
        return bounds_by_time(self.agree_on, model, self.table.stages, self.sample, rows)

    def check_batch(self, batch: Batch) -> None:
        check_same_batch(self.comm, batch)

    def loss_for(self, model: Module, loss_fn: Loss) -> Loss:
        return loss_of_output(loss_fn, self.size)

    def forward_backward(self, work: Work, inner: ForwardBackward = forward_backward_pass) -> float:
        """Run all micro-batches as the schedule says; returns the weighted losses that this rank computes.

        The engine runs the passes, not ``inner``: forward and backward of one micro-batch are instructions.
        """
        self.trained.check()
        losses = self.engine.step(work.split(self.micro_batches), work.on_grad)
        return sum(losses[i] for i in sorted(losses))

    def on_grad(self, parameter: Tensor) -> bool:
        return not self.engine.is_shared(parameter)

    def finish(self, model: Module, loss: float) -> float:
        """Sum the gradients of parameters that several ranks hold, and the losses of the last stages."""
        for group, parameters in self.groups:
            sum_gradients(group, parameters)
        return float(np.sum(allgather(self.comm, np.array(loss))))

    def close(self) -> None:
        """Free the groups of ranks that hold the same parameters."""
        super().close()
        for group, _ in self.groups:
            group.close()
        self.groups = []

    def refusal(self, inner: Strategy) -> str | None:
        if inner.traits.splits_layers and inner.micro_batches == 1:
            return None
        return (
            f"a Pipeline takes micro-batches through its stages itself, so {type(inner).__name__} "
            "inside of it would run no passes of its own; put it outside, with its micro_batches"
        )


class Staged(Module):
    """One rank's layers, which evaluate together with those of the others; returns the last stage's output.

    All ranks call it. Raises RuntimeError where a tape is open, which could not follow it to other ranks.
    """

    token_wise = True

    def __init__(self, model: Sequential, engine: Engine):
        self.model, self.engine = model, engine

    def named_arrays(self, prefix: str = "") -> Iterator[tuple[str, Module, str]]:
        return self.model.named_arrays(prefix)  # the serial names

    def children(self) -> dict[str, Module]:
        """The stages, which the engine runs."""
        return {f"stage {chunk}": part for chunk, part in self.engine.parts.items()}

    def parameters(self) -> list[Parameter]:
        """The parameters of this rank's layers, which may have none."""
        return super().parameters() or ParametersElsewhere()

    def forward(self, x: Any) -> Tensor:
        if current_tape.get() is not None:
            raise RuntimeError(
                "a tape of this rank cannot record what other ranks compute; train with backend.step, and "
                "call the model outside of any Tape"
            )
        comm, route = self.engine.p2p.comm, self.engine.p2p.table.routes[0]
        y = x if isinstance(x, Tensor) else Tensor(x)
        for (rank, chunk), (after, _) in pairwise([*route, route[-1]]):
            if rank == comm.rank:
                y = self.engine.parts[chunk](y)
                if after != rank:
                    comm.send(y.data, after)
            elif after == comm.rank:
                y = Tensor(comm.recv(rank))
        return Tensor(broadcast(comm, y.data, route[-1][0]))


def sum_gradients(comm: Communicator, parameters: list[Tensor]) -> None:
    """Give every rank the sum of all ranks' gradients; a parameter that no rank's loss reached keeps None."""
    xp = array_module(parameters[0].data)
    grads = [xp.zeros_like(p.data) if p.grad is None else p.grad for p in parameters]
    reached = xp.asarray([p.grad is not None for p in parameters], dtype=grads[0].dtype)
    message = xp.concatenate([reached, *(g.reshape(-1) for g in grads)])
    total = allreduce(comm, message)
    sums = unflatten(total[len(parameters) :], grads)
    for parameter, g, present, whole in zip(parameters, grads, total.tolist(), sums, strict=False):
        if present:
            g[...] = whole
            parameter.grad = g
