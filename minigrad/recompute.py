"""What backward needs can be computed again instead of kept: a third more work, for a fraction of the memory.

Lecture section: data lifetimes. Lesson: 03_memory. Of n layers in k segments a tape holds the k inputs, and
backward besides what one segment records: least, about 2 sqrt(n), for k = sqrt(n) (Chen et al. 2016, arXiv
1604.06174). A segment stands on the tape as one entry; the walk, when it comes there, runs the segment again
on the same tape and goes on through what that recorded: through the entries of the model without segments.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from .bfloat16 import bfloat16, in_bfloat16
from .device import Array
from .forward_pass import current_pass
from .module import Module, Sequential, is_sequential
from .own_state import OwnState, generators_of
from .tape import Tape, current_tape
from .tensor import Parameter, Tensor
from .tensor_base import TensorBase, as_tensor


def recomputed(model: Sequential, segments: int | Sequence[int] | None = None) -> Recomputed:
    """``model``, of which a tape keeps only the inputs of segments; the gradients are equal bit by bit.

    ``segments`` is the number of equal segments, by default about the square root of the number of layers;
    or rising bounds: with (0, 4, 8) layers 0 to 3 and 4 to 7 are segments, and layers outside are recorded as
    usual. A bound between layers that are computed ``in_one_pass`` moves to their end. Parameters are shared
    with ``model`` and have the same names. A layer must do the same in its second run as in its first: see
    ``Replay``. Layers that communicate in forward do so again in backward.

    Raises ValueError for a model that is not a Sequential, a number below 1 or above that of the layers, and
    bounds that do not rise from 0 or more to at most the number of layers.
    """
    if not is_sequential(model):
        raise ValueError(
            f"segments are consecutive layers of a Sequential, not of a model with a forward of its own, "
            f"{type(model).__name__}; put its recomputed parts into it"
        )
    n = len(model)
    if segments is None:
        segments = max(1, round(math.sqrt(n)))
    if isinstance(segments, int | np.integer):
        if not 1 <= segments <= n:
            raise ValueError(f"a model of {n} layers has 1 to {n} segments, not {segments}")
        segments = [i * n // int(segments) for i in range(int(segments) + 1)]
    bounds = tuple(segments)
    if len(bounds) < 2 or bounds[0] < 0 or bounds[-1] > n or any(a >= b for a, b in pairwise(bounds)):
        raise ValueError(f"bounds of segments are 2 or more numbers that rise within 0 to {n}, got {bounds}")
    return Recomputed(model.layers, tuple(sorted({model.end_of_pass(bound) for bound in bounds})))


class Recomputed(Sequential):
    """Layers of which those between two ``bounds`` run again in backward; made by ``recomputed``."""

    token_wise = True

    def __init__(self, layers: Sequence[Module], bounds: tuple[int, ...]):
        super().__init__(*layers)
        self.bounds = bounds

    def in_order(self) -> bool:
        return self.computes_as(Recomputed)

    def forward(self, x: Any) -> Tensor:
        tape = current_tape.get()
        if tape is None:
            return super().forward(x)
        x = self.forward_range(x, 0, self.bounds[0])
        for start, stop in pairwise(self.bounds):
            segment = partial(self.forward_range, start=start, stop=stop)
            x = unrecorded(tape, segment, Replay(*self.layers[start:stop]), x)
        return self.forward_range(x, self.bounds[-1], len(self.layers))


class RecomputedModule(Module):
    """A module of any inputs, of which a tape keeps only these, as for the core of an attention.

    Parameters have the names that they have in ``module``.
    """

    token_wise = True

    def __init__(self, module: Module):
        self.module = module

    def named_arrays(self, prefix: str = "") -> Iterator[tuple[str, Module, str]]:
        return self.module.named_arrays(prefix)

    def forward(self, *inputs: Any, **keywords: Any) -> Tensor:
        run, tape = partial(self.module, **keywords), current_tape.get()
        return run(*inputs) if tape is None else unrecorded(tape, run, Replay(self.module), *inputs)


Run = Callable[..., Tensor]


def unrecorded(tape: Tape, run: Run, replay: Replay, *inputs: Any) -> Tensor:
    """``run(*inputs)``, of which ``tape`` gets one ``Segment``, after the leaves that it used."""
    xs = [as_tensor(x) for x in inputs]
    own = [(tape.index_of(x), x.data) for x in xs]
    with Unrecorded() as first:
        y = Tensor(run(*(x.detach() for x in xs)))
    indices = [tape.index_of(leaf) for leaf in first.entries]  # so none is final before the segment is
    if any(i is not None for i in (*(i for i, _ in own), *indices)):
        tape.entries.append(Segment(own, run, replay, tape.leaves))
        y.tape, y.index, y.requires_grad = tape, len(tape.entries) - 1, True
        tape.ops[y.index] = "segment"
    return y


class Unrecorded(Tape):
    """An open tape, as in training, on which only leaves are entered, in the order of their first use."""

    __slots__ = ()

    def index_of(self, x: TensorBase) -> None:
        super().index_of(x)

    def when_reached(self, callback: Callable[[], object]) -> None:
        """Nothing: there is no way back."""


class Segment(list):
    """An entry that is not recorded yet: it holds ``inputs``, where others hold pullbacks.

    Each has its place on the tape, None for a constant, and its array; ``leaves`` are those of the tape.
    """

    def __init__(
        self, inputs: Sequence[tuple[int | None, Array]], run: Run, replay: Replay, leaves: dict[int, int]
    ):
        super().__init__([(index, x.shape, x) for index, x in inputs])
        self.run, self.replay, self.leaves = run, replay, leaves

    def record(self, entries: list[Any]) -> None:
        """Append to ``entries``, which end where this one stood, those of a second run, its value last."""
        tape, xs = Tape(), [Tensor(data) for _, _, data in self]
        # Leaves that were entered later are passed, and other objects may have their ids by now.
        tape.entries, tape.leaves = entries, {k: i for k, i in self.leaves.items() if i < len(entries)}
        for x, (index, _, _) in zip(xs, self, strict=True):
            if index is not None:
                x.tape, x.index, x.requires_grad = tape, index, True
        with self.replay, tape:
            y = self.run(*xs)
        index = tape.index_of(y)
        entries.append([] if index is None else [(index, y.shape, lambda g: g)])


class Replay:
    """What a forward of ``modules`` reads and changes besides parameters, as it is now: to run it twice.

    Make it before the first run, and do the second one inside ``with replay:``. There, random numbers are
    drawn, running statistics read and values rounded as in the first; after it they are as they were before
    the ``with``, so masks are the same and statistics move once. It notes where the forward pass is, the own
    state of modules and the state of every ``np.random.Generator`` that is an attribute of a module, and
    copies every array that is state but no Parameter.
    """

    def __init__(self, *modules: Module):
        self.places = [
            (owner, name)
            for module in modules
            for _, owner, name in module.named_arrays()
            if not isinstance(getattr(owner, name), Parameter)
        ]
        by_id = {id(rng): rng for module in modules for rng in generators_of(module).values()}
        self.generators = list(by_id.values())
        inside = {m for module in modules for m in module.modules() if isinstance(m, OwnState)}
        self.owners = list(inside)
        arrays, *others = self.state()
        self.first = [array.copy() for array in arrays], *others
        current = current_pass.get()
        self.forward_pass = None if current is None else current.copy()
        self.in_bfloat16 = in_bfloat16.get()
        self.blocks: list[ExitStack] = []

    def state(self) -> tuple[list[Array], list[Any], list[Any]]:
        """The arrays, the states of generators, and the own state of modules, as they are now."""
        arrays = [getattr(owner, name) for owner, name in self.places]
        states = [rng.bit_generator.state for rng in self.generators]
        return arrays, states, [owner.own_values() for owner in self.owners]

    def set_state(self, arrays: list[Array], states: list[Any], own: list[Any]) -> None:
        """Go on from what ``state`` gave."""
        for (owner, name), array in zip(self.places, arrays, strict=True):
            setattr(owner, name, array)
        for rng, state in zip(self.generators, states, strict=True):
            rng.bit_generator.state = state
        for owner, values in zip(self.owners, own, strict=True):
            owner.set_own_values(values)

    def __enter__(self) -> Replay:
        block, before, (arrays, states, own) = ExitStack(), self.state(), self.first
        copies = {id(array): then.copy() for array, then in zip(before[0], arrays, strict=True)}
        copied = [copies[id(array)] for array in before[0]]  # modules may share an array
        block.callback(self.set_state, *before)
        again = None if self.forward_pass is None else self.forward_pass.copy()
        block.callback(current_pass.reset, current_pass.set(again))
        block.enter_context(bfloat16(self.in_bfloat16))
        self.blocks.append(block)
        self.set_state(copied, states, own)
        return self

    def __exit__(self, *error: object) -> None:
        self.blocks.pop().close()
