"""How ranks share the work, as the command line says it: --data x --pipe x --model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from minigrad.backend import Backend
from minigrad.nets import SAMPLE

from .comm import run_ranks
from .comm.collectives import allgather
from .comm.protocol import Comm
from .comm.trace import Traced
from .grid import Grid
from .launch import under_mpiexec
from .model_parallel.model_parallel import ModelParallel
from .pipeline import Pipeline
from .stack import Stack
from .strategies import find_strategy

Member = TypeVar("Member", bound=Backend)


@dataclass(frozen=True)
class Layout:
    """``strategy`` on the data axis, each of its ranks a pipeline, each stage of that a split model.

    Every rank holds the same settings. ``schedule`` and what follows are the pipeline's, for ``pipe`` > 1.
    """

    strategy: str = "replicated"
    options: dict[str, Any] = field(default_factory=dict)
    data: int = 1
    pipe: int = 1
    model: int = 1
    plan: dict[str, str] | None = None
    schedule: str | None = None
    micro: int | None = None
    chunks: int | None = None
    bounds: Sequence[int] | str | None = None
    recompute: bool = False

    def check(self, batch_size: int) -> None:
        """Construct every rank's strategies, without a model, to hear what one of them refuses.

        Ranks are threads here, so it is said once, before any process is started.
        """
        if not under_mpiexec():
            run_ranks(self.data * self.pipe * self.model, lambda comm: self.backend_on(comm, batch_size))

    def backend_on(self, comm: Comm, batch_size: int) -> Backend:
        """The strategies on this rank, as a stack where there are several.

        The default plan, and bounds by time, are for steps of ``batch_size`` samples. Raises ValueError
        unless ``comm`` has as many ranks as the layout.
        """
        strategy = find_strategy(self.strategy, self.options)
        split = self.model > 1 or self.plan is not None
        if self.pipe == 1 and not split:
            return strategy(comm)
        grid = Grid(comm, data=self.data, pipe=self.pipe, model=self.model)
        given: dict[str, Any] = {"sample": SAMPLE, "batch_size": max(batch_size // self.data, 1)}
        members = [strategy(grid.data)]
        if self.pipe > 1:
            members.append(self.pipeline(grid.pipe, **given))
        if split:
            members.append(ModelParallel(grid.model, self.plan, **given))
        return Stack(*members)

    def pipeline(self, comm: Comm, **given: Any) -> Pipeline:
        """The pipeline of these settings; None stands for its own defaults."""
        asked = {"schedule": self.schedule, "micro_batches": self.micro, "bounds": self.bounds}
        given |= {name: value for name, value in asked.items() if value is not None}
        return Pipeline(comm, chunks=self.chunks, recompute=self.recompute, **given)


def ranks_of(*, data: int, pipe: int, model: int, **other: Any) -> str:
    """The grid of a layout in words, with the axes that it has."""
    axes = {"data": data, "pipe": pipe, "model": model}
    several = {axis: n for axis, n in axes.items() if n > 1}
    if len(several) < 2:
        return f"{data * pipe * model} rank(s)"
    return f"{' x '.join(map(str, several.values()))} rank(s), {' x '.join(several)}"


def member_of(backend: Backend, kind: type[Member]) -> Member | None:
    """The strategy of this kind that ``backend`` is, or has in its stack."""
    members = backend.members if isinstance(backend, Stack) else (backend,)
    return next((member for member in members if isinstance(member, kind)), None)


def chosen(backend: Backend) -> dict[str, Any]:
    """What a backend that was placed took where nothing was given: the plan, and what is the pipeline's."""
    split, pipeline = member_of(backend, ModelParallel), member_of(backend, Pipeline)
    taken: dict[str, Any] = {"plan": None if split is None else split.plan}
    if pipeline is not None:
        table = pipeline.table
        taken |= {"schedule": table.schedule.name, "micro": table.micros, "chunks": table.chunks}
        taken |= {"bounds": list(pipeline.bounds)}
    return taken


def about(comm: Comm, backend: Backend) -> dict[str, Any]:
    """What a traced run's picture needs to know of it, for its file; all ranks of ``comm`` call.

    Of a pipeline that is its numbers, and which ranks are together in one, each in the order of the stages.
    """
    pipeline = member_of(backend, Pipeline)
    if pipeline is None or not isinstance(pipeline.comm, Traced):
        return {}
    together = {tuple(ranks.tolist()) for ranks in allgather(comm, np.array(pipeline.comm.ranks))}
    table = pipeline.table
    return {
        "pipeline": {
            "schedule": table.schedule.name,
            "micro_batches": table.micros,
            "chunks": table.chunks,
            "ranks": sorted(map(list, together)),
        }
    }
