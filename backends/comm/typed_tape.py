"""A tape that finds a missing or doubled sum over ranks in forward alone, by the types of its tensors.

Lecture section: model parallelism. Lesson: 11_model_parallel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, ParamSpec, cast

from minigrad.checked_entries import op_of
from minigrad.op import OpResult, op
from minigrad.recompute import Segment
from minigrad.tape import Tape, current_tape
from minigrad.tensor import Parameter, Tensor

from .communicator import Communicator
from .gradient_types import REPLICATED, RULES, GradientType, mismatch, refusal, result_of

Types = Mapping[Communicator, GradientType]
"""By axis of ranks; along all others a tensor is REPLICATED."""

P = ParamSpec("P")


class GradientTypeError(RuntimeError):
    """A gradient, or a value, is not summed over ranks as often as it must be."""


class TypedTape(Tape):
    """A tape that types tensors as ops are recorded, over all axes of ranks; backward works as ever.

    ``types`` are those of leaves, REPLICATED where they are not given; ``names`` are those of parameters, as
    in ``model.named_parameters()``. An op raises GradientTypeError where a sum over ranks is missing, or is
    one too many: in forward, and on every rank alike. Tensors that need no gradient have no type.
    """

    __slots__ = ()

    def __init__(
        self, types: Mapping[Tensor, Types] | None = None, names: Mapping[str, Tensor] | None = None
    ) -> None:
        super().__init__()
        self.entries = TypedEntries(types or {}, {id(p): name for name, p in (names or {}).items()})

    def types_of(self, x: Tensor) -> Types:
        """The types of a tensor that needs a gradient, by axis of ranks; REPLICATED along other axes."""
        index = self.index_of(x)
        return {} if index is None else self.entries.types[index]

    def check_loss(self, loss: Tensor) -> None:
        """Raise GradientTypeError unless all ranks have computed one ``loss`` alike."""
        for comm, kind in self.types_of(loss).items():
            raise GradientTypeError(f"the loss {mismatch(kind, REPLICATED, comm.size)}")


class TypedEntries(list):
    """Entries of a tape, each with its types, which ``append`` finds; it raises GradientTypeError."""

    def __init__(self, leaves: Mapping[Tensor, Types], names: Mapping[int, str]):
        super().__init__()
        self.leaves, self.names, self.layer = leaves, names, ""
        self.types: list[Types] = []
        self.communicated: Types | None = None  # of the next entry, where a collective makes it

    def append(self, entry: Any) -> None:
        if isinstance(entry, Segment):
            entry.record(self)  # its ops, in a second run
            return
        types, self.communicated = self.communicated, None
        if isinstance(entry, Tensor):
            types = self.leaves.get(entry, {})
        elif types is None:
            axes = {comm for index, *_ in entry for comm in self.types[index]}
            types = {comm: self.local(entry, comm) for comm in axes}
        super().append(entry)
        self.types.append({comm: kind for comm, kind in types.items() if kind != REPLICATED})

    def local(self, entry: list[Any], comm: Communicator) -> GradientType:
        """The type, over one axis, of what an op without messages makes of entries."""
        op = op_of([pullback for *_, pullback in entry])
        inputs = [(self.name(index), self.types[index].get(comm, REPLICATED)) for index, *_ in entry]
        result = result_of(op, inputs, comm.size)
        if isinstance(result, str):
            raise GradientTypeError(f"{op}{self.layer}: {result}")
        return result

    def communicate(self, op: str, index: int, comm: Communicator) -> None:
        """Type what ``op`` is about to make of an entry."""
        name, reason = self.name(index), refusal(op, self.types[index].get(comm, REPLICATED), comm.size)
        if reason is not None:
            raise GradientTypeError(f"{op}{self.layer}: {name} {reason}")
        self.communicated = {**self.types[index], comm: RULES[op][1]}

    def name(self, index: int) -> str:
        """An entry in words; after a parameter its layer is the one at work."""
        entry = self[index]
        if not isinstance(entry, Tensor):
            return f"the result of {op_of([pullback for *_, pullback in entry])}"
        name = self.names.get(id(entry))
        if name is None:
            return f"the input of shape {entry.shape}"
        if isinstance(entry, Parameter):
            self.layer = f" in layer {name.rpartition('.')[0] or name}"
        return name


def typed_op(function: Callable[P, OpResult]) -> Callable[P, Tensor]:
    """``op`` of a function with messages; ``RULES`` has the type of its first input on a ``TypedTape``."""
    lifted = op(function)

    @wraps(lifted)
    def communicate(*inputs: P.args, **settings: P.kwargs) -> Tensor:
        tape, x, named = current_tape.get(), cast(Any, inputs[0]), cast(Any, settings)
        if tape is not None and isinstance(tape.entries, TypedEntries):
            comm, index = named["comm"] if "comm" in named else named["shard"].comm, tape.index_of(x)
            if index is not None:
                tape.entries.communicate(lifted.__name__, index, comm)
        return lifted(*inputs, **settings)

    return communicate
