"""The engine carries out one rank's instructions: it receives micro-batches, computes and sends the results.

Lecture section: pipelining. Lesson: 13_pipeline. The last stage weights losses, so gradients only add up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from minigrad.device import Array
from minigrad.module import Module
from minigrad.recompute import Replay
from minigrad.tape import OnGrad, Tape, WeightGradient, finish_weights
from minigrad.tensor import Parameter, Tensor
from minigrad.work import Work

from .p2p import Hop, PipelineComm
from .timetable import Backward, Forward, Weight, present, span_name

AHEAD = 2  # receives are posted for the instruction at hand and the next


class Input(Tensor):
    """The input of a stage; its gradient is only sent, so it is not copied."""

    __slots__ = ()

    def accumulate_grad(self, g: Array, *, private: bool = True) -> None:
        self.grad = g


class Engine:
    """One rank's part in the steps of a pipeline: its tapes and gradients of micro-batches in flight.

    ``parts`` are the rank's layers by chunk, ``shared`` those of its parameters that are in other stages too.
    With ``recompute`` a micro-batch keeps only a stage's input, and the backward computes the stage again.
    """

    def __init__(
        self, p2p: PipelineComm, parts: Mapping[int, Module], shared: Sequence[Tensor], recompute: bool
    ):
        self.p2p, self.table, self.comm = p2p, p2p.table, p2p.comm
        self.parts, self.shared, self.recompute = parts, shared, recompute

    def is_shared(self, parameter: Tensor) -> bool:
        """Whether other stages have ``parameter`` too."""
        return any(parameter is other for other in self.shared)

    def step(self, micros: Mapping[int, Work], on_grad: OnGrad | None) -> dict[int, float]:
        """The weighted losses of micro-batches, by number: what the stages on this rank add to them.

        ``on_grad`` is called with each parameter, once, when its gradient is final; shared ones come last.
        """
        self.micros = micros
        self.saved_forwards: dict[tuple[int, int], tuple[Tape, Input, Tensor]] = {}  # by micro-batch, chunk
        self.saved_inputs: dict[tuple[int, int], tuple[Input, Replay]] = {}
        self.deferred: dict[tuple[int, int], list[WeightGradient]] = {}
        self.losses: dict[int, float] = {}
        instructions = [*present(self.table.instructions[self.comm.rank], self.micros)]
        final = {i.chunk: n for n, i in enumerate(instructions) if not isinstance(i, Forward)}

        def announce(leaf: Tensor) -> None:
            if on_grad is not None and isinstance(leaf, Parameter) and not self.is_shared(leaf):
                on_grad(leaf)

        for n, i in enumerate(instructions):
            for coming in instructions[n : n + AHEAD]:
                if not isinstance(coming, Weight):
                    self.p2p.post(self.hop(coming), self.micros[coming.micro].batch.x.shape)
            hook = announce if final.get(i.chunk) == n else None
            if isinstance(i, Forward):
                self.forward(i)
            elif isinstance(i, Backward):
                self.backward(i, hook)
            else:
                self.weight(i, hook)
        self.p2p.finish()
        if on_grad is not None and instructions:
            for parameter in self.shared:
                on_grad(parameter)
        self.micros = {}  # no batch is held between steps
        return self.losses

    def hop(self, i: Forward | Backward) -> Hop:
        return Hop(type(i), i.micro, self.table.stage(i.micro, self.comm.rank, i.chunk))

    def forward(self, i: Forward) -> None:
        hop, work = self.hop(i), self.micros[i.micro]
        x = Input(self.p2p.receive(hop, work.batch.x.shape) if hop.stage else work.batch.x)
        x.requires_grad = hop.stage > self.p2p.first
        with self.comm.computing(span_name(i)), work.forward_pass() as forward_pass:
            if self.recompute:
                self.saved_inputs[i.micro, i.chunk] = x, Replay(self.parts[i.chunk])
                y = self.through(i, x)
            else:
                with Tape() as tape:
                    y = self.through(i, x)
                self.saved_forwards[i.micro, i.chunk] = tape, x, y
        if self.p2p.goes(hop):
            self.p2p.expect(Hop(Backward, i.micro, hop.stage), work.batch.x.shape, y.data)
            self.p2p.send(hop, y.data)
        loss = None if self.p2p.goes(hop) else y
        if loss is not None or forward_pass.penalties:
            self.losses[i.micro] = self.losses.get(i.micro, 0.0) + work.weighted(forward_pass, loss)

    def backward(self, i: Backward, on_grad: OnGrad | None) -> None:
        hop, place = self.hop(i), (i.micro, i.chunk)
        comes, micro = self.p2p.comes(hop), self.micros[i.micro]
        seed = self.p2p.receive(hop, micro.batch.x.shape) if comes else micro.seed
        if hop.stage < self.p2p.first:
            self.saved_forwards.pop(place, self.saved_inputs.pop(place, None))
            return
        with self.comm.computing(span_name(i)):
            if place in self.saved_inputs:
                x, replay = self.saved_inputs.pop(place)
                with replay, Tape() as tape:
                    self.saved_forwards[place] = tape, x, self.through(i, x)
            tape, x, y = self.saved_forwards.pop(place)
            if y.tape is None:
                raise no_gradient_error(hop.stage)
            if place in self.table.split[self.comm.rank]:
                self.deferred[place] = tape.backward(y, seed, weights_later=True)
            else:
                tape.backward(y, seed, on_grad)
        if self.p2p.goes(hop):
            if x.grad is None:
                raise no_gradient_error(hop.stage)
            self.p2p.send(hop, x.grad)

    def weight(self, i: Weight, on_grad: OnGrad | None) -> None:
        with self.comm.computing(span_name(i)):
            gradients = [self.deferred.pop((micro, i.chunk), []) for micro in i.micros]
            finish_weights(sum(gradients, []), on_grad)

    def through(self, i: Forward | Backward, x: Input) -> Tensor:
        """The output of a chunk of layers for ``x``; in the last stage the loss."""
        y = self.parts[i.chunk](x)
        if y is x:  # layers that pass it on record nothing
            y = x * 1
        if self.hop(i).stage == self.table.stages - 1:
            return self.micros[i.micro].loss(y)
        if not isinstance(y, Tensor):
            raise ValueError(
                f"stage {self.hop(i).stage} gives {type(y).__name__}, and only one tensor can go to the "
                "next; put layers that pass more than one tensor between them into one module, or choose "
                "other bounds"
            )
        return y


def no_gradient_error(stage: int) -> ValueError:
    """The error where stages wait for a gradient that does not exist."""
    return ValueError(
        f"no gradient goes back through stage {stage}: its output depends on no trained parameter before it; "
        "freeze the parameters of the layers before it (requires_grad = False), or do not detach"
    )
