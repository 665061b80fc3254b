"""A training step as CUDA graphs: its kernels are recorded once, and launched all together from then on.

A graph holds addresses and numbers, so that whatever changes from step to step must lie in memory that stays:
the samples, masks of dropout, the coefficients of the optimizer. The host writes them there before a
launch, and reads the loss behind it.
Lecture section: GPU against CPU. Lesson: 04_gpu.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import numpy as np

from .data import Batch
from .device import Array, array_module, first_line, on_gpu, to_floats
from .forward_pass import ForwardPass
from .module import Module
from .optim import Optimizer, Update
from .own_state import generators_of
from .random_mask import Mask, RandomMask
from .recompute import Recomputed
from .serial import Serial
from .tensor import Tensor
from .weighted_mean import WeightedMean
from .work import ForwardBackward, Loss, Work, forward_backward_pass, mean_loss


class Captured(Serial):
    """``Serial`` on a GPU, with the same numbers bit by bit, whose steps are launched as CUDA graphs.

    There is a graph of forward and backward for each size of batch, since a graph has fixed shapes: an epoch
    has two sizes at most. A new one is captured where something else changes that a graph holds: which layers
    are in training mode and which parameters frozen, the optimizer's settings besides its rate, and where the
    model's and the optimizer's arrays lie. The first step of each is not captured: it compiles the kernels
    and creates the optimizer's state. Gradients stay in the graph's memory, where the next step writes.
    """

    def __init__(self, micro_batches: int = 1):
        super().__init__(micro_batches)
        self.stream: Any = None
        self.steps: dict[Any, CapturedStep] = {}
        self.latest: CapturedStep | None = None

    def place(self, model: Module) -> Module:
        """``model``; raises ValueError where it computes again in backward, or draws from generators."""
        if any(isinstance(module, Recomputed) for module in model.modules()):
            raise ValueError("a captured step cannot recompute activations; train without capture")
        if generators_of(model):
            raise ValueError(
                "a layer has a generator of random numbers, whose numbers a captured step would repeat; draw "
                "with nn.Dropout, or train without capture"
            )
        return super().place(model)

    def step(
        self, model: Module, batch: Batch, loss_fn: Loss, inner: ForwardBackward = forward_backward_pass
    ) -> float:
        """The gradients and the loss, as ``Serial`` computes them; ``inner`` is not called.

        Raises ValueError for arrays of the host and for gradients of earlier steps, which a graph would not
        add to; RuntimeError for what cannot be captured.
        """
        return self.launch(model, batch, loss_fn).loss()

    def launch(self, model: Module, batch: Batch, loss_fn: Loss) -> CapturedStep:
        """The step of ``step``, for which the host does not wait; ``loss()`` of the result reads the loss."""
        parameters = list(model.parameters())
        if not all(map(on_gpu, (batch.x, batch.y, *(p.data for p in parameters)))):
            raise ValueError(
                'a captured step needs model and batch on a GPU; move them with .to(device="cupy")'
            )
        if any(p.grad is not None for p in parameters):
            raise ValueError("a captured step starts without gradients; call optimizer.zero_grad() before it")
        arrays = [(a.shape, a.dtype, a.strides) for a in (batch.x, batch.y)]
        modes = [m.training for m in model.modules()] + [p.requires_grad for p in parameters]
        values = [getattr(owner, name) for _, owner, name in model.named_arrays()]
        addresses = [(v.data if isinstance(v, Tensor) else v).data.ptr for v in values]
        key = (model, loss_fn, *arrays, *modes, *addresses)
        if self.stream is None:
            self.stream = array_module(batch.x).cuda.Stream(non_blocking=True)
        if key not in self.steps:
            self.steps[key] = CapturedStep(self, model, batch, loss_fn)
        self.latest, step = self.steps[key], self.step_number
        self.step_number += 1
        self.latest.run(batch, step)
        return self.latest

    def update(self, model: Module, optimizer: Optimizer) -> None:
        """Let the optimizer use the gradients of the latest step, once."""
        if self.latest is None:
            raise ValueError("there are no gradients to update by; take a step before each update")
        latest, self.latest = self.latest, None
        latest.update(optimizer)

    def close(self) -> None:
        """Give the graphs back, and their memory."""
        self.steps.clear()
        self.latest = None


class CapturedStep:
    """Forward and backward of one size of batch, and the updates by their gradients."""

    def __init__(self, backend: Captured, model: Module, batch: Batch, loss_fn: Loss):
        xp = array_module(batch.x)
        self.batch = Batch(xp.empty_like(batch.x), xp.empty_like(batch.y))
        self.backend, self.model, self.loss_fn = backend, model, loss_fn
        self.masks = StepMasks(xp)
        self.losses: list[tuple[float, Array]] = []
        self.passes = Recording(xp.cuda, backend.stream, self.forward_backward)
        self.gradients: list[Array | None] = []
        self.updates: dict[Optimizer, CapturedUpdate] = {}

    def run(self, batch: Batch, step: int) -> None:
        """Copy the samples into the memory of the graph, and the masks of this step, and compute."""
        with self.passes.ordered():
            self.batch.x[...], self.batch.y[...] = batch.x, batch.y
            self.masks.begin(step)
            self.passes.run()
        for parameter, gradient in zip(self.model.parameters(), self.gradients, strict=True):
            parameter.grad = gradient

    def forward_backward(self) -> None:
        """What is recorded: all micro-batches, without the loss read."""
        self.losses = []
        loss_fn = self.loss_fn
        if isinstance(loss_fn, WeightedMean):  # the divisor is that of the samples that lie there now
            loss_fn = loss_fn.for_parts_of(self.batch.y)

        def inner(work: Work) -> float:
            with CapturedPass(self.masks, work):
                self.losses.append((work.loss_weight, mean_loss(work).data))
            return 0.0

        self.backend.forward_backward(Work(self.model, self.batch, loss_fn), inner)
        parameters = list(self.model.parameters())
        self.gradients = [p.grad for p in parameters]
        for parameter in parameters:
            parameter.grad = None

    def loss(self) -> float:
        """The loss of the whole batch; the host waits for it."""
        weights, means = zip(*self.losses, strict=True)
        return sum((w * mean for w, mean in zip(weights, to_floats(means), strict=True)), 0.0)

    def update(self, optimizer: Optimizer) -> None:
        """Update the parameters by the gradients of this step."""
        update = self.updates.get(optimizer)
        if update is None or update.constants != constants_of(optimizer):
            update = self.updates[optimizer] = CapturedUpdate(self.backend.stream, optimizer)
        update.run()


class CapturedUpdate:
    """The updates of all parameters, whose coefficients lie in an array on the GPU."""

    def __init__(self, stream: Any, optimizer: Optimizer):
        self.optimizer = optimizer
        self.constants: Any = None
        self.xp = array_module(optimizer.parameters[0].data)
        self.recording = Recording(self.xp.cuda, stream, self.apply)
        self.updates: list[Update] = []
        self.coefficients: Array = None

    def run(self) -> None:
        """Compute the coefficients of this step on the host, and update with them."""
        self.updates = list(self.optimizer.updates())
        rows = np.array([update.coefficients for update in self.updates], np.float64)
        with self.recording.ordered():
            if self.coefficients is None:
                self.coefficients = self.xp.empty(rows.shape)
            self.coefficients.set(rows)
            self.recording.run()
        self.constants = constants_of(self.optimizer)  # now that the state is there

    def apply(self) -> None:
        """What is recorded. Like Python's numbers, these take the dtype of the array they meet."""
        casts = {dtype: self.coefficients.astype(dtype) for dtype in {u.w.dtype for u in self.updates}}
        numbers = [
            tuple(casts[update.w.dtype][i, j] for j in range(len(update.coefficients)))
            for i, update in enumerate(self.updates)
        ]
        pairs = zip(self.updates, numbers, strict=True)
        self.optimizer.apply(update._replace(coefficients=of_gpu) for update, of_gpu in pairs)


def constants_of(optimizer: Optimizer) -> tuple[dict[str, Any], list[int]]:
    """What the graph of an update holds: the settings besides the rate, and the addresses of the state."""
    settings = {k: v for k, v in vars(optimizer).items() if k not in ("parameters", "state", "lr")}
    values = [value for state in optimizer.state for value in state.values()]
    return settings, [value.data.ptr for value in values if on_gpu(value)]


class Recording:
    """``work`` on a stream: computed at the first run, captured at the second, and launched from then on.

    The graph's memory is a pool of its own, which lives as long as the graph: nobody else gets memory that
    the next launch overwrites.
    """

    def __init__(self, cuda: Any, stream: Any, work: Callable[[], object]):
        self.cuda, self.stream, self.work, self.pool = cuda, stream, work, cuda.MemoryPool()
        self.is_new = True
        self.graph: Any = None

    def run(self) -> None:
        """Do the work once."""
        if self.is_new:
            self.work()
            self.is_new = False
            return
        if self.graph is None:
            self.graph = self.capture()
        self.graph.launch(self.stream)

    def capture(self) -> Any:
        with self.cuda.using_allocator(self.pool.malloc):
            self.stream.begin_capture()
            try:
                self.work()
            except Exception as error:
                with suppress(Exception):  # what is wrong with the capture is said already
                    self.stream.end_capture()
                reason = first_line(error)
                raise RuntimeError(
                    f"the step cannot be captured ({reason}); train without capture"
                ) from error
            return self.stream.end_capture()

    @contextmanager
    def ordered(self) -> Iterator[None]:
        """Work inside runs on this stream, behind that of the current stream, which then waits for it."""
        outer = self.cuda.get_current_stream()
        self.stream.wait_event(outer.record())
        with self.stream:
            yield
        outer.wait_event(self.stream.record())


class StepMasks:
    """The masks of a model's layers, on the GPU: those of each step in the same memory."""

    def __init__(self, xp: Any):
        self.xp, self.step, self.calls = xp, 0, 0
        self.masks: list[tuple[RandomMask, float, Array]] = []  # in the order of the calls in a step

    def begin(self, step: int) -> None:
        """Draw for ``step`` what the steps before have drawn, in the same order."""
        self.step, self.calls = step, 0
        for mask, p, array in self.masks:
            array.set(mask._replace(step=step).keep(array.shape, p))

    def array(self, mask: RandomMask, shape: tuple[int, ...], p: float) -> Array:
        """The array of the next call in this step."""
        if self.calls == len(self.masks):
            self.masks.append((mask, p, self.xp.asarray(mask.keep(shape, p))))
        self.calls += 1
        return self.masks[self.calls - 1][2]


class CapturedPass(ForwardPass):
    """A forward pass of a captured step, whose masks lie in the memory of the graph."""

    def __init__(self, masks: StepMasks, work: Work):
        super().__init__(masks.step, work.batch.places, work.batch.is_part)
        self.masks = masks

    def mask(self, seed: int) -> Mask:
        mask = super().mask(seed)
        assert isinstance(mask, RandomMask)
        return CapturedMask(self.masks, mask)


class CapturedMask(NamedTuple):
    """A mask of a captured step."""

    masks: StepMasks
    mask: RandomMask

    def keep(self, shape: tuple[int, ...], p: float) -> Array:
        return self.masks.array(self.mask, shape, p)
