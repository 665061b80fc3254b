"""A training step as CUDA graphs: its kernels are recorded once, and launched all together from then on.

A graph holds addresses and numbers, so that whatever changes from step to step must lie in memory that stays:
the samples, masks of dropout, the coefficients of the optimizer. The host writes them there before a
launch, and reads the loss after it.
Lecture section: GPU against CPU. Lesson: 04_gpu.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from operator import attrgetter, is_
from typing import Any, NamedTuple

import numpy as np

from .data import Batch
from .device import Array, array_module, first_line, on_gpu, to_floats
from .forward_pass import ForwardPass
from .module import Module, evaluation_mode
from .nn import Experts
from .optim import Optimizer, Update
from .own_state import generators_of
from .random_mask import Mask, RandomMask
from .recompute import Recomputed
from .serial import Serial
from .tensor_base import TensorBase
from .weighted_mean import WeightedMean
from .work import ForwardBackward, Loss, Work, forward_backward_pass, mean_loss


class Captured(Serial):
    """``Serial`` on a GPU, with the same numbers bit by bit, whose steps are launched as CUDA graphs.

    There is a graph of forward and backward for each size of batch, since a graph has fixed shapes: an epoch
    has two sizes at most. A new one is captured where something else changes that a graph holds: anything in
    the model or the loss function (``Snapshot``), and the optimizer's settings besides its rate, or its
    arrays. The first step of each is not captured: it compiles the kernels and creates the optimizer's state.
    Gradients stay in the graph's memory, where the next step writes.
    """

    def __init__(self, micro_batches: int = 1):
        super().__init__(micro_batches)
        self.stream: Any = None
        self.snapshot: Snapshot | None = None
        self.steps: dict[str, dict[Any, CapturedStep]] = {}  # by snapshot, then by size of batch
        self.latest: CapturedStep | None = None

    def place(self, model: Module) -> Module:
        """``model``; raises ValueError where it recomputes, has experts, or draws from generators."""
        if any(isinstance(module, Recomputed) for module in model.modules()):
            raise ValueError("a captured step cannot recompute activations; train without capture")
        if any(isinstance(module, Experts) for module in model.modules()):
            raise ValueError(
                "a mixture of experts has as many rows for each as chose it, which the host counts, and a "
                "captured step has fixed shapes; train without capture, or without experts"
            )
        if generators_of(model):
            raise ValueError(
                "a layer has a generator of random numbers, whose numbers a captured step would repeat; draw "
                "with nn.Dropout, or train without capture"
            )
        return super().place(model)

    def step(
        self,
        model: Module,
        batch: Batch,
        loss_fn: Loss,
        inner: ForwardBackward = forward_backward_pass,
        *,
        loss_scale: float = 1.0,
    ) -> float:
        """The gradients and the loss, as ``Serial`` computes them; ``inner`` is not called.

        Raises ValueError for arrays of the host, for gradients of earlier steps, which a graph would not add
        to, and for a loss scale; RuntimeError for what cannot be captured.
        """
        if loss_scale != 1:
            raise ValueError(
                "a captured step repeats the numbers that it was recorded with, and a loss scale may change; "
                "train without capture, or in float32"
            )
        return self.launch(model, batch, loss_fn).loss()

    def launch(
        self, model: Module, batch: Batch, loss_fn: Loss, optimizer: Optimizer | None = None
    ) -> CapturedStep:
        """Compute as ``step`` does, but do not wait; ``loss()`` of the returned step reads the loss.

        With an ``optimizer`` its update is part of the step, and of the graph, unless the host must see norms
        of the gradients; ``update`` is then not called.
        """
        snapshot = self.snapshot
        if snapshot is None or not snapshot.is_current(model, loss_fn):
            snapshot = self.snapshot = Snapshot(model, loss_fn)
            for key, steps in list(self.steps.items()):  # without those of a number that each step changes
                if key != snapshot.key and not any(step.recording.graph for step in steps.values()):
                    del self.steps[key]
        if not (snapshot.is_on_gpu and on_gpu(batch.x) and on_gpu(batch.y)):
            raise ValueError(
                'a captured step needs model and batch on a GPU; move them with .to(device="cupy")'
            )
        if any([p.grad is not None for p in snapshot.parameters]):
            raise ValueError(
                "a captured step starts without gradients; call model.zero_grad() before it, or freeze "
                "parameters that the optimizer does not have (requires_grad = False)"
            )
        if self.stream is None:
            self.stream = array_module(batch.x).cuda.Stream(non_blocking=True)
        steps = self.steps.setdefault(snapshot.key, {})
        key = (optimizer, self.micro_batches, *[(a.shape, a.dtype, a.strides) for a in (batch.x, batch.y)])
        step = steps.get(key)
        if step is None or (step.own_update is not None and not step.own_update.is_current()):
            step = steps[key] = CapturedStep(self, snapshot, batch)
        number, self.step_number = self.step_number, self.step_number + 1
        step.run(batch, number)
        self.latest = step if optimizer is None else None
        if optimizer is not None and step.own_update is None:
            step.update(optimizer)
            if not optimizer.needs_norms and optimizer.limit is None:
                step.own_update = step.updates[optimizer]
        return step

    def update(self, model: Module, optimizer: Optimizer) -> None:
        """Let the optimizer use the gradients of the latest step, once; it has those of the model alone."""
        if self.latest is None:
            raise ValueError("there are no gradients to update by; take a step before each update")
        latest, self.latest = self.latest, None
        latest.update(optimizer)

    def close(self) -> None:
        """Give the graphs back, and their memory."""
        self.steps.clear()
        self.latest = self.snapshot = None


class Snapshot:
    """The objects that a model and a loss function hold, to see at each step whether one has been replaced.

    They are the attributes of modules and of the loss function, the items of lists, tuples, dicts and sets in
    these, and ``data`` and ``requires_grad`` of tensors. They are compared by identity, all in one call, and
    whoever replaces one need not say so. Attributes of other objects and variables of functions are not seen.
    """

    def __init__(self, model: Module, loss_fn: Loss):
        self.model, self.loss_fn = model, loss_fn
        self.parameters = model.parameters()
        self.is_on_gpu = all(on_gpu(p.data) for p in self.parameters)
        self.tensors: dict[int, TensorBase] = {}
        self.containers: dict[int, Any] = {}  # by id; of a module the dict of its attributes
        with evaluation_mode(model):
            pass  # afterwards each module's mode is among its attributes, also where it was its class's
        waiting = [model, getattr(loss_fn, "__dict__", None)]
        while waiting:
            x = waiting.pop()
            if isinstance(x, Module):
                x = vars(x)
            if isinstance(x, TensorBase):
                self.tensors[id(x)] = x
            elif isinstance(x, (dict, list, tuple, set, frozenset)) and id(x) not in self.containers:
                self.containers[id(x)] = x
                waiting += x.values() if isinstance(x, dict) else x
        self.values = [x.values() for x in self.containers.values() if isinstance(x, dict)]
        self.objects = self.read()
        self.key = repr([id(model), id(loss_fn), *map(identity, self.objects)])  # a str keeps its hash

    def read(self) -> list[Any]:
        """The objects that are there now."""
        states = map(attrgetter("data", "requires_grad"), self.tensors.values())
        return [*chain.from_iterable(chain(self.containers.values(), self.values, states))]

    def is_current(self, model: Module, loss_fn: Loss) -> bool:
        """Whether it is one of this model and this loss function as they are now."""
        return model is self.model and loss_fn == self.loss_fn and identical(self.objects, self.read())


def identity(x: Any) -> Any:
    """Equal where a graph sees no difference: the place of an array, the value of a number or a string."""
    if on_gpu(x):
        return x.data.ptr, x.shape, x.strides
    return repr(x) if isinstance(x, (int, float, str)) else id(x)


def identical(some: list[Any], others: list[Any]) -> bool:
    """Whether both lists have the same objects."""
    return len(some) == len(others) and all(map(is_, some, others))


class CapturedStep:
    """Forward and backward of one size of batch, and the updates by their gradients."""

    def __init__(self, backend: Captured, snapshot: Snapshot, batch: Batch):
        xp = array_module(batch.x)
        if batch.tokens is not None:
            raise ValueError(
                "a captured step has one set of documents, and each batch has its own; train without capture"
            )
        self.batch = Batch(xp.empty_like(batch.x), xp.empty_like(batch.y))
        self.backend, self.snapshot = backend, snapshot
        self.masks = StepMasks(xp)
        self.losses: list[tuple[float, Array]] = []
        self.recording = Recording(xp.cuda, backend.stream, self.compute)
        self.gradients: list[Array | None] = []
        self.updates: dict[Optimizer, CapturedUpdate] = {}
        self.own_update: CapturedUpdate | None = None  # the one that is recorded in the same graph

    def run(self, batch: Batch, number: int) -> None:
        """Copy the samples of step ``number``, and its masks, into the memory of the graph, and compute."""
        if self.own_update is not None:
            self.set_gradients()
            self.own_update.count_step()
        with self.recording.ordered():
            self.batch.x[...], self.batch.y[...] = batch.x, batch.y
            self.masks.begin(number)
            if self.own_update is not None:
                self.own_update.upload()
            self.recording.run()
        self.set_gradients()

    def set_gradients(self) -> None:
        """Let the parameters have the gradients that lie in the memory of the graph."""
        for parameter, gradient in zip(self.snapshot.parameters, self.gradients, strict=True):
            parameter.grad = gradient

    def compute(self) -> None:
        """What is recorded: all micro-batches, without the loss read, and perhaps the update."""
        self.losses = []
        loss_fn = self.snapshot.loss_fn
        if isinstance(loss_fn, WeightedMean):  # the divisor is that of the samples that lie there now
            loss_fn = loss_fn.for_parts_of(self.batch.y)

        def inner(work: Work) -> float:
            with CapturedPass(self.masks, work):
                forward_pass, loss = mean_loss(work)
                self.losses.append((work.loss_weight, sum(forward_pass.penalties, loss.data)))
            return 0.0

        for parameter in self.snapshot.parameters:
            parameter.grad = None
        self.backend.forward_backward(Work(self.snapshot.model, self.batch, loss_fn), inner)
        self.gradients = [p.grad for p in self.snapshot.parameters]
        if self.own_update is not None:
            self.own_update.apply()

    def loss(self) -> float:
        """The loss of the whole batch; the host waits for it."""
        weights, means = zip(*self.losses, strict=True)
        return sum((w * mean for w, mean in zip(weights, to_floats(means), strict=True)), 0.0)

    def update(self, optimizer: Optimizer) -> None:
        """Update the parameters by the gradients of this step, or by those that have taken their places.

        Raises ValueError for master weights: the host must see first whether gradients are finite.
        """
        if optimizer.master_weights is not None:
            raise ValueError(
                "a captured step updates parameters before the host sees their gradients, and master weights "
                "leave out a step whose gradients overflow; train without capture, or in float32"
            )
        if not identical(self.gradients, [p.grad for p in self.snapshot.parameters]):
            optimizer.step()
            return
        update = self.updates.get(optimizer)
        if update is None or not update.is_current():
            if any(p.grad is not None for p in {*optimizer.parameters} - {*self.snapshot.parameters}):
                raise ValueError(
                    "a captured step has gradients of the model alone, and the optimizer has that of another "
                    "parameter; put this into the model, or train without capture"
                )
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
        self.rows: list[tuple[Any, ...]] = []  # the coefficients that lie on the GPU
        self.coefficients: Array = None

    def is_current(self) -> bool:
        """Whether the optimizer has the settings and the arrays that a graph holds."""
        settings, objects = constants_of(self.optimizer)
        return settings == self.constants[0] and identical(objects, self.constants[1])

    def run(self) -> None:
        """Compute the coefficients of this step on the host, and update with them."""
        self.count_step()
        with self.recording.ordered():
            self.upload()
            self.recording.run()
        if self.constants is None:
            self.constants = constants_of(self.optimizer)  # now that the state is there

    def count_step(self) -> None:
        """Let the optimizer count a step, and compute its coefficients."""
        self.updates = list(self.optimizer.updates())

    def upload(self) -> None:
        """Copy the coefficients to the GPU, where they have changed."""
        rows = [update.coefficients for update in self.updates]
        if rows != self.rows:
            if self.coefficients is None:
                self.coefficients = self.xp.empty((len(rows), len(rows[0])))
            self.coefficients.set(np.array(rows, np.float64))
            self.rows = rows

    def apply(self) -> None:
        """What is recorded. Like Python's numbers, these take the dtype of the array they meet."""
        gradients = [p.grad for p in self.optimizer.parameters if p.requires_grad and p.grad is not None]
        casts = {dtype: self.coefficients.astype(dtype) for dtype in {u.w.dtype for u in self.updates}}
        numbers = [
            tuple(casts[update.w.dtype][i, j] for j in range(len(update.coefficients)))
            for i, update in enumerate(self.updates)
        ]
        parts = zip(self.updates, gradients, numbers, strict=True)
        self.optimizer.apply(update._replace(g=g, coefficients=of_gpu) for update, g, of_gpu in parts)


def constants_of(optimizer: Optimizer) -> tuple[list[dict[str, Any]], list[Any]]:
    """What the graph of an update holds: settings besides the rate; parameters, and arrays of the state."""
    settings = [
        {
            k: v.copy() if v.__class__ in (list, dict) else v
            for k, v in vars(one).items()
            if k not in ("parameters", "state", "lr", "ratio", "groups")
        }
        for one in (optimizer, *optimizer.groups)
    ]
    objects = [x for p in optimizer.parameters for x in (p, p.data, p.requires_grad)]
    kind = optimizer.parameters[0].data.__class__
    return settings, objects + [x for state in optimizer.state for x in state.values() if x.__class__ is kind]


class Recording:
    """``work`` on a stream: computed at the first run, captured at the second, and launched from then on.

    The graph's memory is a pool of its own, which lives as long as the graph: nobody else gets memory that
    the next launch overwrites.
    """

    def __init__(self, cuda: Any, stream: Any, work: Callable[[], object]):
        self.cuda, self.stream, self.work, self.pool = cuda, stream, work, cuda.MemoryPool()
        self.is_new = True
        self.graph: Any = None
        self.event = cuda.Event(disable_timing=True)

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
        """Work inside runs on this stream, after that of the current stream, which then waits for it."""
        outer = self.cuda.get_current_stream()
        self.stream.wait_event(outer.record(self.event))
        with self.stream:
            yield
        outer.wait_event(self.stream.record(self.event))


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
        super().__init__(masks.step, work.batch.places, work.batch.is_part, weight=work.loss_weight)
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
