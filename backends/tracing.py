"""What is recorded of a training run: the spans of a step, and the steps found again in a trace."""

from __future__ import annotations

from bisect import bisect_right
from contextlib import AbstractContextManager, ExitStack, nullcontext

from minigrad.backend import Backend, Loss
from minigrad.data import Batch
from minigrad.module import Module
from minigrad.optimizer import Optimizer
from minigrad.tape import OnGrad
from minigrad.tensor import Tensor

from .cli.parallel import members
from .comm import Comm
from .comm.timeline import kind
from .comm.trace import Span, Trace, Traced
from .pipeline import Pipeline
from .pipeline.asynchronous import AsynchronousPipeline
from .stack import Stack


def computing(comm: Comm, name: str) -> AbstractContextManager:
    """A span around a ``with``, where ``comm`` is traced."""
    return comm.computing(name) if isinstance(comm, Traced) else nullcontext()


def trace_step(comm: Comm, backend: Backend) -> None:
    """Record spans for the forward and backward and for the update of ``backend``.

    Forward ends, and backward begins, where the loss has been computed. A pipeline records its instructions
    itself. Without a trace nothing changes.
    """
    if not isinstance(comm, Traced):
        return
    innermost = backend.members[-1] if isinstance(backend, Stack) else backend
    run, update, loss, now = backend.run, backend.update, innermost.loss, ExitStack()

    def traced_run(
        model: Module, batch: Batch, loss_fn: Loss, weight: float, on_grad: OnGrad | None
    ) -> float:
        with now:
            now.enter_context(comm.computing("forward"))
            return run(model, batch, loss_fn, weight, on_grad)

    def traced_loss(model: Module, batch: Batch, loss_fn: Loss) -> Tensor:
        found = loss(model, batch, loss_fn)
        now.close()
        now.enter_context(comm.computing("backward"))
        return found

    def traced_update(model: Module, optimizer: Optimizer) -> None:
        with comm.computing("update"):
            update(model, optimizer)

    backend.update = traced_update
    if not any(isinstance(member, (Pipeline, AsynchronousPipeline)) for member in members(backend)):
        backend.run, innermost.loss = traced_run, traced_loss


def steps_of(trace: Trace) -> list[Trace]:
    """The training steps: each rank's spans from its first forward to the end of its update.

    A trace without updates, as of a plan, is one step. The ledgers are the whole run's.
    """
    steps: dict[int, list[Span]] = {}
    for rank in range(trace.size):
        mine = sorted((s for s in trace.spans if s.rank == rank), key=lambda s: s.start)
        ends = sorted(s.stop for s in mine if s.what == "update")
        begun: set[int] = set()
        for span in mine:
            step = bisect_right(ends, span.start)
            if kind(span.what) == "forward":
                begun.add(step)
            if step in begun:
                steps.setdefault(step, []).append(span)
    return [Trace(tuple(steps[step]), trace.ledgers, trace.clock_error) for step in sorted(steps)]
