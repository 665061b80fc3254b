"""How ranks share the work: --data x --pipe x --sequence x --model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from minigrad.strategy import Strategy

from ..comm import run_ranks
from ..comm.communicator import Communicator
from ..grid import Grid
from ..pipeline import schedule_names
from ..pipeline.schedule_file import schedule_of
from ..process.launcher import under_mpiexec
from ..registry import find_strategy, strategy_names
from ..stack import Stack
from ..words import counted

PIPELINE, SEQUENCE_PARALLEL, MODEL_PARALLEL = "pipeline", "sequence-parallel", "model-parallel"
"""The strategies of their axes."""


@dataclass(frozen=True)
class ParallelConfig:
    """``strategy`` on the data axis, whose ranks are pipelines, whose stages are models split over ranks.

    ``sequence`` ranks share the tokens of rows, in the ``sequence_form`` and with ``sequence_options``.
    Every rank holds the same settings. ``schedule`` and the settings after it are for ``pipe`` > 1.
    ``schedule`` names a timetable of ``Pipeline``, or another strategy of the pipe axis, which takes
    ``pipe_options``. A ``timetable`` is the content of a schedule file; ``schedule`` is its name.
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
    pipe_options: dict[str, Any] = field(default_factory=dict)
    timetable: dict[str, Any] | None = None
    split_tokens: bool = False
    sequence: int = 1
    sequence_form: str = "ring"
    sequence_options: dict[str, Any] = field(default_factory=dict)

    @property
    def ranks(self) -> int:
        return self.data * self.pipe * self.sequence * self.model

    def check(self, backend: Callable[[Communicator], Strategy]) -> Strategy | None:
        """Construct ``backend`` on every rank, without a model; raises what one of them raises.

        Ranks are threads here, so a mistake is reported once, before any process is started. Returns rank
        0's; None in a process that is a rank of a job, which checks nothing again.
        """
        return None if under_mpiexec() else run_ranks(self.ranks, backend)[0]

    def backend_on(self, comm: Communicator, batch_size: int, sample: Sequence[int]) -> Strategy:
        """The strategy on this rank, a stack where there are several.

        The default plan and the bounds by time suit steps of ``batch_size`` samples that are like ``sample``.
        Raises ValueError unless ``comm`` has as many ranks as the grid.
        """
        strategy = find_strategy(self.strategy, self.options)
        split = self.model > 1 or self.plan is not None
        if self.pipe == self.sequence == 1 and not split:
            return strategy(comm)
        grid = Grid(comm, data=self.data, pipe=self.pipe, sequence=self.sequence, model=self.model)
        measured: dict[str, Any] = {"sample": sample, "batch_size": max(batch_size // self.data, 1)}
        members = [] if self.strategy == "serial" and not self.options else [strategy(grid.data)]
        if self.sequence > 1:
            tokens = find_strategy(SEQUENCE_PARALLEL, self.sequence_options, "sequence")
            members.append(tokens(grid.sequence, form=self.sequence_form))
        if self.pipe > 1:
            pipeline = self.pipeline(grid.pipe, agree_on=grid.comm, **measured)
            if members and pipeline.traits.outermost_only:
                axis = "sequence" if self.sequence > 1 else "data"
                flags = "--sequence" if self.sequence > 1 else "--data and --strategy"
                raise ValueError(
                    f"--schedule {self.schedule} updates parameters in its own way, so it has no {axis} "
                    f"axis; leave {flags} out, or choose a timetable such as 1f1b"
                )
            members.append(pipeline)
        if split:
            options = {"split_tokens": True} if self.split_tokens else {}
            layers = find_strategy(MODEL_PARALLEL, options, "model")
            members.append(layers(grid.model, self.plan, **measured))
        return members[0] if len(members) == 1 else Stack(*members)

    def pipeline(self, comm: Communicator, **measured: Any) -> Strategy:
        """The strategy on the pipe axis; a setting of None keeps the strategy's own default."""
        settings = {"micro_batches": self.micro, "bounds": self.bounds}
        settings = {name: value for name, value in settings.items() if value is not None}
        if self.timetable is None and self.schedule in pipe_strategies():
            return find_strategy(self.schedule, self.pipe_options, "pipe")(comm, **settings)
        settings |= {} if self.schedule is None else {"schedule": self.schedule}
        settings |= {} if self.timetable is None else {"schedule": schedule_of(self.timetable)}
        pipeline = find_strategy(PIPELINE, axis="pipe")
        return pipeline(comm, chunks=self.chunks, recompute=self.recompute, **settings, **measured)

    def trace_notes(self) -> dict[str, Any]:
        """The metadata of a trace: a pipeline's numbers, and the ranks of each in the order of its stages."""
        if self.pipe == 1 or (self.timetable is None and self.schedule in pipe_strategies()):
            return {}
        inner = self.sequence * self.model
        first = (d * self.pipe * inner + i for d in range(self.data) for i in range(inner))
        return {
            "pipeline": {
                "schedule": self.schedule,
                "micro_batches": self.micro,
                "chunks": self.chunks,
                "bounds": self.bounds,
                **({} if self.timetable is None else {"timetable": self.timetable}),
                "ranks": [[rank + stage * inner for stage in range(self.pipe)] for rank in first],
            }
        }


def pipe_strategies() -> list[str]:
    """The strategies of the pipe axis that ``--schedule`` names, besides the timetables of ``Pipeline``."""
    return [name for name in strategy_names("pipe") if name != PIPELINE]


def pipeline_names() -> list[str]:
    """All names that ``--schedule`` takes."""
    return [*schedule_names(), *pipe_strategies()]


def ranks_of(*, data: int, pipe: int, model: int, sequence: int = 1, **other: Any) -> str:
    """The grid in words, with the axes that have several ranks."""
    axes = {"data": data, "pipe": pipe, "sequence": sequence, "model": model}
    several = {axis: n for axis, n in axes.items() if n > 1}
    if len(several) < 2:
        return counted(data * pipe * sequence * model, "rank")
    return f"{' x '.join(map(str, several.values()))} ranks, {' x '.join(several)}"


def members(backend: Strategy | None) -> tuple[Strategy, ...]:
    """The strategies in a stack, from the outermost; of another backend itself, of None no strategy."""
    return backend.members if isinstance(backend, Stack) else () if backend is None else (backend,)


def chosen(backend: Strategy) -> dict[str, Any]:
    """The settings that the strategies chose by themselves when the model was placed."""
    return {n: value for m in members(backend) for n, value in m.declaration.chosen(m).items()}
