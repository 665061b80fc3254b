"""No rank needs everything: each keeps a part of the optimizer's state, of the gradients and of the weights.

Lecture section: data lifetimes, synchronous data parallelism. Lesson: 06_data_parallel. The three stages of
ZeRO (Rajbhandari et al. 2019): an all-reduce is a reduce-scatter and an all-gather, and the update between
the two needs only a part. For P float32 parameters on N ranks, with K bytes of optimizer state for each:

                 bytes on each rank        collectives in a step                              elements sent
    replicated   (8 + K) P                 all-reduce the gradients                           2 P (N - 1) / N
    stage 1      8 P + K P / N             reduce-scatter them, update, all-gather weights    2 P (N - 1) / N
    stage 2      4 P + (4 + K) P / N       the same, each gradient as soon as it is final     2 P (N - 1) / N
    stage 3      (8 + K) P / N             all-gather weights before each use, both ways      3 P (N - 1) / N

With float16 as many numbers are sent, in half of the bytes; with Adam's float32 masters a rank holds
4 P + 12 P / N bytes in stage 1, 2 P + 14 P / N in stage 2 and 16 P / N in stage 3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import takewhile
from typing import Any

import numpy as np

from minigrad.device import Array, to_host
from minigrad.lookup import at_least_one
from minigrad.module import Module
from minigrad.optim import Optimizer
from minigrad.placed_state import Values
from minigrad.strategy import Strategy
from minigrad.tensor import Tensor
from minigrad.traits import Traits
from minigrad.work import ForwardBackward, Work, forward_backward_pass

from ...comm.background import Background
from ...comm.collectives import allreduce
from ...comm.communicator import Communicator
from ..flat import buckets
from ..sharded_optimizer import Elements, ShardedOptimizer
from ..synchronous import SynchronousDataParallel
from .flat_parameter import FlatParameter, nan_like
from .gathered_weights import GatheredWeights, GatherOnUse


class ShardedState(ShardedOptimizer):
    """The state of a model whose flat parameters are cut into equal parts, one for each rank."""

    backend: Sharded

    def owned_by(self, rank: int) -> Iterator[Elements]:
        for flat in self.backend.flats:
            for n, within, _ in flat.layout.segments(rank):
                yield flat.parameters[n], within

    def parameter_values(self, model: Module) -> Values:
        whole = {}
        for flat in self.backend.flats:
            whole.update(zip(flat.parameters, flat.values(), strict=True))
        named = model.named_parameters().items()
        return {name: whole[p] if p in whole else to_host(p.data) for name, p in named}

    def gradient_values(self, model: Module) -> Values:
        grads = {}
        for flat in self.backend.flats:
            sums = zip(flat.parameters, flat.all_gather_gradients(), strict=True)
            grads.update((p, to_host(g)) for p, g in sums if p in flat.reached)
        return {name: grads.get(p) for name, p in model.named_parameters().items()}

    @contextmanager
    def accumulate(self, model: Module) -> Iterator[None]:
        """Add the new sums to this rank's elements of the earlier ones."""
        flat_of = self.backend.flat_of
        earlier = {p: flat.owned_gradient(p).copy() for p, flat in flat_of.items() if p.grad is not None}
        for parameter in earlier:
            parameter.grad = None
        yield
        for parameter, g in earlier.items():
            flat_of[parameter].owned_gradient(parameter)[...] += g
        self.backend.mark(earlier)

    def global_square_norms(self, model: Module, squares: np.ndarray) -> np.ndarray:
        """The sum over the ranks, as each has those of its parts."""
        return self.backend.sum(squares)


class Sharded(SynchronousDataParallel):
    """Data parallelism in which each rank owns an equal part of the trained parameters.

    ``stage`` says which arrays are sharded: 1, the optimizer's state; 2, also the gradients; 3, also the
    weights, which are whole only while a layer computes. Parameters travel as flat parameters (FSDP's term):
    buckets of ``bucket_bytes``, in stage 3 the parameters of one module. A rank also holds the frozen
    parameters, and a second copy of a flat parameter while it travels. The gradients of several
    ``micro_batches`` add up whole, and are reduced once.

    After ``step`` a parameter's ``grad`` reads NaN and takes no memory: its owners hold the sum, which
    ``full_gradients`` collects. In stage 3 a parameter's ``data`` reads NaN except while its own module runs,
    until ``finalize``. Only that module may use it, and all ranks must call modules in the same order, also
    without samples and for evaluation: a step in which they do not raises RuntimeError. ``overlap`` moves the
    collectives into the background, and in stage 3 gathers ``prefetch`` flat parameters ahead.
    """

    traits = Traits(outermost_only=True)
    state_class = ShardedState

    def __init__(
        self,
        comm: Communicator,
        *,
        stage: int = 1,
        bucket_bytes: int = 1 << 20,
        overlap: bool = False,
        prefetch: int = 1,
        micro_batches: int = 1,
        batch_norm: str = "ranks",
    ):
        super().__init__(comm, micro_batches=micro_batches, batch_norm=batch_norm)
        if stage not in (1, 2, 3):
            raise ValueError(f"stage must be 1 (optimizer state), 2 (gradients) or 3 (weights), got {stage}")
        self.stage, self.overlap, self.prefetch = stage, overlap, prefetch
        self.bucket_bytes = at_least_one("bucket_bytes", bucket_bytes)
        if prefetch < 0:
            raise ValueError(f"prefetch must be a number of flat parameters, 0 or more, got {prefetch}")
        self.weights = GatheredWeights(prefetch=prefetch if overlap else 0) if stage == 3 else None
        if stage == 3:
            self.traits = replace(self.traits, communicates_in_forward=True)
        self.background: Background | None = None
        self.flats: list[FlatParameter] = []
        self.waiting: list[FlatParameter] = []  # not yet reduced in this step
        self.flat_of: dict[Tensor, FlatParameter] = {}

    def place(self, model: Module) -> Module:
        """The model with rank 0's parameters; this rank keeps its part of the parameters.

        Raises ValueError too for a model whose weights are sharded already.
        """
        if not all(module.is_whole for module in model.modules() if isinstance(module, GatherOnUse)):
            raise ValueError(
                "the model was placed before, and its weights are sharded; call backend.finalize(model) or "
                "backend.close(), which make it whole, before it is placed again"
            )
        model = super().place(model)
        if self.weights is None:
            groups = buckets(self.summary.parameters, self.bucket_bytes)
            self.flats = [FlatParameter(group, self.comm, self.start) for group in groups]
        else:
            model = self.weights.place(model, self.comm, self.start)
            self.flats = list(self.weights.flats)
        self.flat_of = {p: flat for flat in self.flats for p in flat.parameters}
        self.waiting = list(self.flats)
        return self.hold(model)

    def mark(self, reached: Iterable[Tensor]) -> None:
        """Give parameters a NaN gradient: the owners hold the sum."""
        for parameter in reached:
            self.flat_of[parameter].reached.add(parameter)
            parameter.grad = nan_like(parameter.data)

    def forward_backward(self, work: Work, inner: ForwardBackward = forward_backward_pass) -> float:
        if self.overlap and self.background is None:
            self.background = self.comm.background()
        for flat in self.flats:
            flat.grad_shard = None  # of the step before
        return super().forward_backward(work, inner)

    def on_grad(self, parameter: Tensor) -> None:
        """Reduce flat parameters when they become complete, in the same order on all ranks.

        Raises RuntimeError, naming the parameter, for a second announcement in one step.
        """
        flat = self.flat_of.get(parameter)
        if flat is None or self.stage == 1:
            return
        if parameter not in flat.missing:
            raise RuntimeError(
                f"rank {self.rank}: {self.names[parameter]} was announced twice in one step, and may be "
                "reduced already; to add up gradients use micro_batches, or stage=1"
            )
        flat.missing.remove(parameter)
        in_order = [flat] if self.stage == 3 else self.waiting  # there all ranks call the same modules
        for complete in list(takewhile(lambda one: not one.missing, in_order)):
            self.waiting.remove(complete)
            complete.start_reduce_scatter()

    def finish(self, model: Module, loss: float) -> float:
        """Reduce the remaining flat parameters and the summary; each owner has its part of the gradients."""
        for flat in self.waiting:
            flat.start_reduce_scatter()
        reached = {p for flat in self.flats for p in flat.reached}
        total = self.sum(self.summary.pack(loss, reached))
        self.waiting = list(self.flats)
        if self.weights is not None:
            self.weights.end_step()
        for flat in self.flats:
            flat.wait_reduce_scatter()
        loss, flags = self.summary.unpack(total)
        for flat in self.flats:
            flat.reached = set()
        self.mark(p for p, flag in zip(self.summary.parameters, flags, strict=True) if flag)
        return loss

    def update(self, model: Module, optimizer: Optimizer) -> None:
        """Each rank updates its parts, then whole weights are gathered again; norms are summed over ranks."""
        self.check_update(model, optimizer)
        numbers = {p: n for n, p in enumerate(optimizer.parameters)}
        optimizer.step(
            (part for flat in self.flats for part in flat.parts(numbers)),
            partial(self.state.total_squares, model, optimizer),
        )
        whole = [flat for flat in self.flats if flat.is_whole]
        for flat in whole:
            flat.start_all_gather()
        for flat in whole:
            flat.all_gather()

    def start(self, job: Callable[[Communicator], Any], what: str, nbytes: int) -> Callable[[], Any]:
        """Start a collective: at once, or after the others in the background if there is one."""
        if self.background is not None:
            return self.background.start(job, what, nbytes)
        result = job(self.comm)
        return lambda: result

    def sum(self, x: Array) -> Array:
        """The sum of a small array over all ranks."""
        return self.start(lambda comm: allreduce(comm, x), "allreduce", x.nbytes)()

    def finalize(self, model: Module | None = None) -> None:
        """Make the weights whole for good, and end the background."""
        if self.weights is not None:
            self.weights.finalize()
        if self.background is not None:
            self.background.close()
            self.background = None

    def close(self) -> None:
        """Free the background and the shards; weights become whole, as in ``finalize``."""
        self.finalize()
        super().close()
        self.flats, self.flat_of, self.waiting = [], {}, []

    def refusal(self, inner: Strategy) -> str | None:
        if self.stage == 3 and inner.traits.splits_layers:
            return (
                f"{type(self).__name__} gathers weights when modules are called, and split layers compute "
                "without a call; let every rank keep its weights (of the sharded stages, 1 or 2)"
            )
        return None
