"""What the layers of a rank take and give in a training step, by the names that they have in a serial run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from minigrad.device import to_host
from minigrad.forward_pass import current_pass
from minigrad.module import Module, is_sequential
from minigrad.op import OpResult, op
from minigrad.tensor import Parameter, Tensor
from minigrad.tokens import Tokens

from .model_parallel.layers.class_parallel import ClassLinear
from .model_parallel.layers.sharding import Shard, ShardedTensor
from .placement import Placeholder
from .sequence_parallel.split_tokens import SplitTokens

FORWARD, BACKWARD = "forward", "backward"


class Port(NamedTuple):
    """An input or the output of a layer, in its ``call``-th call in a forward pass."""

    layer: str
    call: int
    end: str  # "input", "input 1" of several, or "output"

    def __str__(self) -> str:
        again = f", call {self.call + 1}" if self.call else ""
        return f"{self.end} of {f'layer {self.layer}' if self.layer else 'the model'}{again}"


Event = tuple[str, Port]
"""A direction, FORWARD or BACKWARD, and a port: the tensor there, or its gradient."""


class Record(NamedTuple):
    """A tensor, and its gradient once that came, as one rank holds them for the samples at ``places``."""

    port: Port
    places: tuple[int, ...]
    tokens: Tokens | None
    shards: Sequence[Shard]
    arrays: dict[str, np.ndarray]  # by direction

    def part_of(self, whole: np.ndarray) -> np.ndarray:
        """What this rank holds of the serial run's rows of these samples."""
        if isinstance(self.tokens, SplitTokens) and whole.ndim > 1:
            whole = whole[:, self.tokens.own]
        for shard in self.shards:
            whole = shard.local_part(whole)
        return whole


@op
def recorded(x: Any, *, record: Record, note: Callable[[Record, str, Any], None]) -> OpResult:
    """x itself, which is noted in the record, as is the gradient that comes back."""
    note(record, FORWARD, x)

    def to_x(g: Any) -> Any:
        note(record, BACKWARD, g)
        return g

    return x, (to_x,)


class Recording:
    """An ``Observer`` of the layers of ``model``; those in order are recorded one by one, and not as one.

    ``records`` has what was recorded, by port and places, ``order`` each event once, and ``gradients`` those
    of parameters before ranks reduce them.
    """

    def __init__(self, model: Module):
        self.names: dict[int, list[str]] = {}
        self.kinds: dict[str, str] = {}
        for name, module in serial_names(model):
            self.names.setdefault(id(module), []).append(name)
            self.kinds[name] = type(module).__name__
        self.records: dict[tuple[Port, tuple[int, ...]], Record] = {}
        self.order: dict[Event, None] = {}
        self.gradients: dict[Parameter, np.ndarray] = {}
        self.open: list[str] = []

    def note(self, record: Record, direction: str, x: Any) -> None:
        record.arrays[direction] = to_host(x).copy()
        self.records[record.port, record.places] = record
        self.order[direction, record.port] = None

    def gradient(self, parameter: Any) -> None:
        if parameter.grad is not None:
            self.gradients[parameter] = to_host(parameter.grad).copy()

    def call(
        self, module: Module, forward: Callable[..., Any], inputs: Sequence[Any], keywords: dict[str, Any]
    ) -> Any:
        """The output of ``forward``, recorded, as the inputs are."""
        name, current = self.name_of(module), current_pass.get()
        if name is None or current is None or name in self.open[-1:]:  # a part of a layer called alike
            return forward(*inputs, **keywords)
        port = Port(name, current.calls[name], "input")
        current.calls[name] += 1
        self.open.append(name)
        try:
            ports = [port, *(port._replace(end=f"input {i}") for i in range(1, len(inputs)))]
            y = forward(*map(self.record, inputs, ports), **keywords)
        finally:
            self.open.pop()
        if isinstance(module, ClassLinear) and module.training:  # whose output hides how it is split
            y = self.record(replace(y, shards=(module.shard,)), port._replace(end="output"))
            return replace(y, shards=())
        return self.record(y, port._replace(end="output"))

    def name_of(self, module: Module) -> str | None:
        """The name of a layer; of several names that of the position where the pass is now."""
        names, current = self.names.get(id(module), []), current_pass.get()
        path = [] if current is None else current.path
        return next((name for name in names if len(names) == 1 or is_at(name, path)), None)

    def record(self, x: Any, port: Port) -> Any:
        """x, or each tensor in it, recorded; parameters, arrays and numbers are not."""
        if isinstance(x, ShardedTensor):
            return replace(x, local=self.tensor(x.local, port, x.shards))
        if type(x) is tuple:
            return tuple(self.record(y, port._replace(end=f"{port.end} {i}")) for i, y in enumerate(x))
        return self.tensor(x, port) if isinstance(x, Tensor) and not isinstance(x, Parameter) else x

    def tensor(self, x: Tensor, port: Port, shards: Sequence[Shard] = ()) -> Tensor:
        current = current_pass.get()
        assert current is not None
        places = tuple(map(int, current.places))
        return recorded(x, record=Record(port, places, current.tokens, shards, {}), note=self.note)


def serial_names(module: Module, name: str = "") -> Iterator[tuple[str, Module]]:
    """The modules that compute, with their names in a serial run, but for layers in order.

    What only passes on the names of its arrays, as a wrapper of a layer, is called like the layer.
    """
    passes_on, children = type(module).named_arrays is not Module.named_arrays, module.children()
    in_order = [module, *children.values()] if passes_on else [module]
    if not isinstance(module, Placeholder) and not any(map(is_sequential, in_order)):
        yield name, module
    for child_name, child in children.items():
        longer = f"{name}.{child_name}" if name else child_name
        yield from serial_names(child, name if passes_on else longer)


def is_at(name: str, path: Sequence[int]) -> bool:
    """Whether the positions of ``path`` stand in a dotted name, in this order."""
    parts = iter(name.split("."))
    return all(str(position) in parts for position in path)
