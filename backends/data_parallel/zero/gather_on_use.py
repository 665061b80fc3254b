"""A layer whose weights are whole only while it computes: gathered before each pass, freed after it.

Lecture section: data lifetimes. Lesson: 06_data_parallel, by ``gathered_weights.py``. The tape marks where
the layer begins and ends:

    forward     unshard | layer           | reshard
    tape           mark | layer's entries | mark
    backward    reshard | layer's entries | unshard
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from minigrad.device import array_module
from minigrad.module import Module
from minigrad.tape import current_tape
from minigrad.tensor import Tensor

from .sharded_parameter import ShardedParameter

if TYPE_CHECKING:
    from .gathered_weights import GatheredWeights


class GatherOnUse(Module):
    """Gives ``layer`` whole weights while it and while its pullbacks run; keeps the names of its arrays.

    Raises TypeError, when called, where the layer returns anything but a Tensor.
    """

    def __init__(self, layer: Module, flats: list[ShardedParameter], weights: GatheredWeights):
        self.layer, self.flats, self.weights = layer, flats, weights

    @property
    def is_whole(self) -> bool:
        return not self.flats  # otherwise its arrays read NaN

    def named_arrays(self, prefix: str = "") -> Iterator[tuple[str, Module, str]]:
        return self.layer.named_arrays(prefix)  # the serial names

    def __getattr__(self, name: str) -> Any:
        """The layer's attributes, as FSDP's wrapper gives them."""
        if name == "layer":  # not set yet, as while a copy is made
            raise AttributeError(name)
        return getattr(self.layer, name)

    def __call__(self, *inputs: Any, **settings: Any) -> Tensor:
        return self.call_unsharded(self.layer, *inputs, **settings)

    def forward(self, *inputs: Any, **settings: Any) -> Tensor:
        return self.call_unsharded(self.layer.forward, *inputs, **settings)

    def call_unsharded(self, layer: Callable[..., Any], *inputs: Any, **settings: Any) -> Tensor:
        tape = current_tape.get()
        on_tape: list[bool] = []  # not empty once backward will come here
        if tape is not None:
            tape.when_reached(lambda: self.reshard() if on_tape else None)
        self.weights.unshard(self.flats, in_step=tape is not None)
        try:
            out = layer(*inputs, **settings)
            if not isinstance(out, Tensor):
                raise TypeError(
                    f"in {self.layer!r}: forward returned {type(out).__name__}; weights are gathered for "
                    "layers that return one Tensor: let it do so, or use stage=2"
                )
            share_memory = array_module(out.data).may_share_memory
            if any(share_memory(out.data, flat.unsharded) for flat in self.flats):
                out = out * 1  # a copy, as freed memory reads zeros
            if tape is not None and tape.index_of(out) is not None:
                on_tape.append(True)
                tape.when_reached(lambda: self.weights.unshard(self.flats))
            return out
        finally:
            self.reshard()

    def reshard(self) -> None:
        for flat in self.flats:
            flat.reshard()

    def release(self) -> None:
        """Stop gathering: from now on the weights are whole."""
        self.flats = []
