"""A training run's trace: which spans are recorded, and what is shown of them at the end."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path

from rich.console import Console

from minigrad.backend import Backend, Loss
from minigrad.data import Batch
from minigrad.module import Module
from minigrad.optimizer import Optimizer
from minigrad.tape import OnGrad
from minigrad.tensor import Tensor

from .comm import Comm
from .comm.timeline import draw, gantt, summary
from .comm.trace import Trace, Traced
from .stack import Stack


def computing(comm: Comm, name: str) -> AbstractContextManager:
    """A span around a ``with``, where ``comm`` is traced."""
    return comm.computing(name) if isinstance(comm, Traced) else nullcontext()


def trace_step(comm: Comm, backend: Backend) -> None:
    """Record spans for the forward and backward and for the update of ``backend``.

    Forward ends, and backward begins, where the loss has been computed. Without a trace nothing changes.
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

    backend.run, backend.update, innermost.loss = traced_run, traced_update, traced_loss


def last_steps(trace: Trace, n: int) -> tuple[float, float]:
    """When the last ``n`` training steps began on the first rank, and ended on the last."""
    begun = ([s.start for s in trace.spans if s.rank == r and s.what == "forward"] for r in range(trace.size))
    ended = [s.stop for s in trace.spans if s.what == "update"]
    return min(starts[-n:][0] for starts in begun if starts), max(ended)


def show_trace(trace: Trace, picture: Path, console: Console) -> None:
    """Draw the last steps as a PNG, and print the very last and the totals."""
    start, stop = last_steps(trace, 3)
    draw(trace, picture, title=f"the last steps (whole run: {summary(trace)})", start=start, stop=stop)
    start, stop = last_steps(trace, 1)
    drawing = gantt(trace, max(console.width - 14, 20), start, stop)
    console.print(f"the last step:\n{drawing}", markup=False, highlight=False, soft_wrap=True)
    console.print(f"whole run: {summary(trace)}", highlight=False)
