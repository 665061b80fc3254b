"""Weights that are whole only while a layer computes: gathered before and freed after each pass through it.

Lecture section: data lifetimes. Lesson: 06_data_parallel. The tape marks where the layer begins and ends:

    forward     unshard | layer           | reshard
    tape           mark | layer's entries | mark
    backward    reshard | layer's entries | unshard
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from minigrad.device import array_module
from minigrad.module import Module
from minigrad.tape import current_tape
from minigrad.tensor import Parameter, Tensor

from .flat_parameter import FlatParameter


class Prefetcher:
    """Unshards flat parameters; with ``ahead`` it starts to gather the next one while one is in use.

    The next one is the one that came next in the previous step. All ranks call modules in the same order, so
    all gather the same; no gathering goes beyond the end of a step, where the weights change.
    """

    def __init__(self, *, ahead: bool = False):
        self.ahead = ahead
        self.last_step: list[FlatParameter] = []
        self.this_step: list[FlatParameter] = []

    def unshard(self, flat_parameters: list[FlatParameter], *, in_step: bool = True) -> None:
        for flat in flat_parameters:
            sharded = not flat.ref_count
            flat.unshard()
            if self.ahead and sharded and in_step:
                self.gather_after(flat)

    def gather_after(self, flat_parameter: FlatParameter) -> None:
        """Start to gather the one that came after ``flat_parameter`` in the previous step."""
        i = len(self.this_step)
        self.this_step.append(flat_parameter)
        if self.last_step[i : i + 1] != [flat_parameter]:
            self.last_step = []  # modules were called in another order
        elif i + 1 < len(self.last_step):
            self.last_step[i + 1].start_all_gather()

    def end_step(self, flat_parameters: list[FlatParameter]) -> None:
        """Drop gathered weights that were not used: the update changes them."""
        for flat in flat_parameters:
            flat.wait_all_gather()
        self.last_step, self.this_step = self.this_step, []


class GatherOnUse(Module):
    """Gives ``layer`` whole weights while it and while its pullbacks run; keeps the names of its arrays.

    Raises TypeError, when called, where the layer returns anything but a Tensor.
    """

    def __init__(self, layer: Module, flat_parameters: list[FlatParameter], prefetcher: Prefetcher):
        self.layer, self.flat_parameters, self.prefetcher = layer, flat_parameters, prefetcher

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
        self.prefetcher.unshard(self.flat_parameters, in_step=tape is not None)
        try:
            out = layer(*inputs, **settings)
            if not isinstance(out, Tensor):
                raise TypeError(
                    f"in {self.layer!r}: forward returned {type(out).__name__}; weights are gathered for "
                    "layers that return one Tensor: let it do so, or use stage=2"
                )
            share_memory = array_module(out.data).may_share_memory
            if any(share_memory(out.data, flat.unsharded) for flat in self.flat_parameters):
                out = out * 1  # a copy, as freed memory reads zeros
            if tape is not None and tape.index_of(out) is not None:
                on_tape.append(True)
                tape.when_reached(lambda: self.prefetcher.unshard(self.flat_parameters))
            return out
        finally:
            self.reshard()

    def reshard(self) -> None:
        for flat in self.flat_parameters:
            flat.reshard()

    def release(self) -> None:
        """Stop gathering: from now on the weights are whole."""
        self.flat_parameters = []


def wrap_layers(
    model: Module, flat_parameter_of: dict[Tensor, FlatParameter], prefetcher: Prefetcher
) -> tuple[Module, list[tuple[Module, str, GatherOnUse]]]:
    """Replace every module that holds parameters itself by a GatherOnUse around it.

    Returns the model, wrapped if it holds parameters itself, and (parent, name, wrapper) of each replacement.
    """
    needs: dict[Module, list[FlatParameter]] = {}
    for _, owner, attribute in model.named_arrays():
        value = getattr(owner, attribute)
        flat_parameter = flat_parameter_of.get(value) if isinstance(value, Parameter) else None
        if flat_parameter is not None and flat_parameter not in needs.setdefault(owner, []):
            needs[owner].append(flat_parameter)
    wrappers = {layer: GatherOnUse(layer, needed, prefetcher) for layer, needed in needs.items() if needed}
    children = [(parent, name, c) for parent in model.modules() for name, c in parent.children().items()]
    places = [(parent, name, wrappers[child]) for parent, name, child in children if child in wrappers]
    for parent, name, wrapper in places:
        parent.replace(name, wrapper)
    if model in wrappers:  # in no place but the caller's
        places.append((wrappers[model], "layer", wrappers[model]))
    return wrappers.get(model, model), places
