"""Functions that see, and may change, the outputs of layers and their gradients, by the layers' names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from minigrad.forward_pass import ForwardPass, current_observer
from minigrad.module import Module
from minigrad.op import OpResult, op
from minigrad.own_state import serial_modules
from minigrad.tensor import Tensor

from .model_parallel.layers.sharding import Shard
from .recording import Port, Recording

Hook = Callable[[Any], Any]


def changed(hook: Hook, x: Any) -> Any:
    """What ``hook`` gives for x; x itself where that is None."""
    y = hook(x)
    return x if y is None else y


@op
def hooked(x: Any, *, hook: Hook) -> OpResult:
    """x itself, whose gradient ``hook`` sees and may replace."""
    return x, (lambda g: changed(hook, g),)


class Hooks(Recording):
    """Inside ``with Hooks(model, forward={"2": f}, backward={"2": g}):`` functions are called by layers.

    ``f`` is called with each output of the layer "2", a Tensor, and ``g`` with the gradient of it, an array,
    which it must not write into. What they return takes its place, unless it is None. Names are those of a
    serial run; ``model`` is what ``place`` returned. A rank sees its own part: some samples, of a split layer
    some features; and gradients of the whole batch's loss, times the loss scale. A recomputed segment calls
    ``f`` twice. Layers are computed one by one. Raises ValueError for a name that no layer has that computes
    (a Sequential leaves it to its layers), and RuntimeError where other hooks are open.
    """

    def __init__(self, model: Module, *, forward: Mapping[str, Hook] = {}, backward: Mapping[str, Hook] = {}):
        super().__init__(model)
        self.hooks, self.around = (forward, backward), ForwardPass(None, range(0), observer=self)
        names = {*self.kinds, *(name for name, module in serial_modules(model) if not module.children())}
        for name in {**forward, **backward}.keys() - names:
            layers = ", ".join(sorted(names - {""}))
            raise ValueError(f"there is no layer {name!r} for a hook; there are {layers}")

    def __enter__(self) -> Self:
        if current_observer() is not None:
            raise RuntimeError("other hooks are open; give one Hooks all functions")
        self.around.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.around.__exit__()

    def gradient(self, parameter: Any) -> None:
        """Nothing: hooks are of layers."""

    def tensor(self, x: Tensor, port: Port, shards: Sequence[Shard] = ()) -> Tensor:
        forward, backward = (hooks.get(port.layer) for hooks in self.hooks)
        if port.end.startswith("input"):
            return x
        x = x if forward is None else changed(forward, x)
        return x if backward is None else hooked(x, hook=backward)
