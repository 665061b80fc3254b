"""Stage 3 of ZeRO: a rank holds its part of the weights, and gathers those of a layer to use it.

Lecture section: data lifetimes. Lesson: 06_data_parallel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from minigrad.device import array_module
from minigrad.module import Module
from minigrad.settings_repr import settings_repr
from minigrad.tape import current_tape
from minigrad.tensor import Parameter, Tensor

from ...comm.communicator import Communicator
from .flat_parameter import FlatParameter, Start


class GatheredWeights:
    """A flat parameter for each module that holds parameters; it is whole only while the module computes.

    While one is in use, the gathering of the next ``prefetch`` flat parameters starts: those that came next
    in the step before. All ranks call modules in the same order, so all gather the same; no gathering goes
    beyond the end of a step, where the weights change.
    """

    __repr__ = settings_repr

    def __init__(self, *, prefetch: int = 0):
        self.prefetch = prefetch
        self.flats: list[FlatParameter] = []
        self.last_step: list[FlatParameter] = []
        self.this_step: list[FlatParameter] = []
        self.wrapped: list[tuple[Module, str, GatherOnUse]] = []  # parent, name, wrapper

    def place(self, model: Module, comm: Communicator, start: Start) -> Module:
        """Make the flat parameters, and put a GatherOnUse around every module that holds some itself.

        Returns the model, wrapped if it holds parameters itself.
        """
        groups = enumerate(group_by_owner(model))
        self.flats = [FlatParameter(group, comm, start, number, is_sharded=True) for number, group in groups]
        flat_of: dict[Tensor, FlatParameter] = {p: flat for flat in self.flats for p in flat.parameters}
        needs: dict[Module, list[FlatParameter]] = {}
        for _, owner, attribute in model.named_arrays():
            value = getattr(owner, attribute)
            flat = flat_of.get(value) if isinstance(value, Parameter) else None
            if flat is not None and flat not in needs.setdefault(owner, []):
                needs[owner].append(flat)
        wrappers = {layer: GatherOnUse(layer, needed, self) for layer, needed in needs.items() if needed}
        children = [(parent, name, c) for parent in model.modules() for name, c in parent.children().items()]
        places = [(parent, name, wrappers[child]) for parent, name, child in children if child in wrappers]
        for parent, name, wrapper in places:
            parent.replace(name, wrapper)
        if model in wrappers:  # in no place but the caller's
            places.append((wrappers[model], "layer", wrappers[model]))
        self.wrapped = places
        return wrappers.get(model, model)

    def unshard(self, flats: list[FlatParameter], *, in_step: bool = True) -> None:
        """Gather flat parameters for a layer."""
        for flat in flats:
            sharded = not flat.is_whole
            flat.unshard()
            if self.prefetch and sharded and in_step:
                self.gather_after(flat)

    def gather_after(self, flat: FlatParameter) -> None:
        """Start to gather those that came after ``flat`` in the previous step."""
        i = len(self.this_step)
        self.this_step.append(flat)
        if self.last_step[i : i + 1] != [flat]:
            self.last_step = []  # modules were called in another order
        for following in self.last_step[i + 1 : i + 1 + self.prefetch]:
            following.start_all_gather()

    def end_step(self) -> None:
        """Drop gathered weights that were not used: the update changes them."""
        for flat in self.flats:
            flat.wait_all_gather()
        self.last_step, self.this_step = self.this_step, []

    def finalize(self) -> None:
        """Gather the weights for good, and remove the wrappers from the model."""
        for parent, name, wrapper in self.wrapped:
            wrapper.flats = []  # so it gathers nothing any more
            parent.replace(name, wrapper.layer)
        self.wrapped = []
        for flat in self.flats:
            flat.unshard_for_good()
        self.flats, self.last_step, self.this_step = [], [], []


class GatherOnUse(Module):
    """Gives ``layer`` whole weights while it and while its pullbacks run; keeps the names of its arrays.

    The tape marks where the layer begins and ends:

        forward     unshard | layer           | reshard
        tape           mark | layer's entries | mark
        backward    reshard | layer's entries | unshard

    Raises TypeError, when called, where the layer returns anything but a Tensor.
    """

    def __init__(self, layer: Module, flats: list[FlatParameter], weights: GatheredWeights):
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


def group_by_owner(model: Module) -> list[list[Parameter]]:
    """The trained parameters in groups by the module that holds them first, last module first."""
    names = {name for name, p in model.named_parameters().items() if p.requires_grad}
    groups: dict[Module, list[Parameter]] = {}
    for name, owner, attribute in model.named_arrays():
        if name in names:
            groups.setdefault(owner, []).append(getattr(owner, attribute))
    return list(groups.values())[::-1]
