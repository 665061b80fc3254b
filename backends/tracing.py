"""Recording a training run as spans, and finding its steps in the trace."""

from __future__ import annotations

from bisect import bisect_right
from functools import partial

import numpy as np

from minigrad.backend import Backend, ForwardBackward, Loss, SquareNorms, Unshard, forward_backward_pass
from minigrad.data import Batch
from minigrad.module import Module
from minigrad.optim import Optimizer

from .comm.communicator import Communicator
from .comm.timeline import kind
from .comm.trace import Span, Trace


class Recorded(Backend):
    """Runs ``backend``, and records its forwards, backwards and updates as spans if ``comm`` is traced.

    A pipeline records its instructions itself.
    """

    def __init__(self, backend: Backend, comm: Communicator):
        self.backend, self.comm = backend, comm
        self.rank, self.size = backend.rank, backend.size
        self.pass_in_spans = partial(forward_backward_pass, span=comm.computing)

    def place(self, model: Module) -> Module:
        return self.backend.place(model)

    def step(self, model: Module, batch: Batch, loss_fn: Loss, inner: ForwardBackward | None = None) -> float:
        return self.backend.step(model, batch, loss_fn, inner or self.pass_in_spans)

    def update(self, model: Module, optimizer: Optimizer, square_norms: SquareNorms | None = None) -> None:
        with self.comm.computing("update"):
            self.backend.update(model, optimizer, square_norms)

    def full_parameters(self, model: Module, unshard: Unshard | None = None) -> dict[str, np.ndarray]:
        return self.backend.full_parameters(model, unshard)

    def full_state(self, model: Module, unshard: Unshard | None = None) -> dict[str, np.ndarray]:
        return self.backend.full_state(model, unshard)

    def full_gradients(self, model: Module, unshard: Unshard | None = None) -> dict[str, np.ndarray | None]:
        return self.backend.full_gradients(model, unshard)

    def finalize(self, model: Module) -> None:
        self.backend.finalize(model)

    def close(self) -> None:
        self.backend.close()


def steps_of(trace: Trace) -> list[Trace]:
    """The training steps: each rank's spans from its first forward to the end of its update.

    A trace without updates, such as that of a plan, is one step. The ledgers are those of the whole run.
    """
    steps: dict[int, list[Span]] = {}
    for rank in range(trace.size):
        spans = sorted((s for s in trace.spans if s.rank == rank), key=lambda s: s.start)
        ends = sorted(s.stop for s in spans if s.what == "update")
        training: set[int] = set()  # the steps with a forward
        for span in spans:
            step = bisect_right(ends, span.start)
            if kind(span.what) == "forward":
                training.add(step)
            if step in training:
                steps.setdefault(step, []).append(span)
    return [Trace(tuple(steps[step]), trace.ledgers, trace.clock_error) for step in sorted(steps)]
