"""A layer of which each rank holds a part, made from a serial layer that all ranks hold whole.

Lecture section: model parallelism. Lesson: 11_model_parallel.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from minigrad.module import Module
from minigrad.tensor import Parameter, Tensor

from ..comm.protocol import Comm
from .activation import Activation, Cut


class SplitLayer(Module):
    """Takes and gives an ``Activation``; its parameters have the serial layer's names.

    ``cuts`` says how each parameter is cut, by attribute name (not there: whole, on every rank).
    ``partial`` names whole parameters of which each rank finds only a part of the gradient, and the ranks
    over which these parts are to be summed. ``out`` says how the channels or features (axis 1) that the layer
    gives are cut: the layer behind it is made to fit.
    """

    out: Cut | None = None

    def __init__(self) -> None:
        self.cuts: dict[str, Cut] = {}
        self.partial: dict[str, Comm] = {}

    def hold(self, name: str, parameter: Parameter | None, cut: Cut | None = None) -> None:
        """Make this rank's part of a serial parameter an attribute of this layer."""
        if parameter is None:
            setattr(self, name, None)
            return
        data = parameter.data if cut is None else cut.part_of(parameter.data)
        setattr(self, name, Parameter(data, parameter.requires_grad))
        if cut is not None:
            self.cuts[name] = cut

    @property
    def held(self) -> list[Parameter]:
        """The parameters that are there, in the order in which they were held."""
        return [value for value in vars(self).values() if isinstance(value, Parameter)]

    def forward(self, x: Any) -> Tensor:
        """Whole in, whole out."""
        return self.split_forward(Activation(x if isinstance(x, Tensor) else Tensor(x))).gathered().x

    def split_forward(self, a: Activation) -> Activation:
        raise NotImplementedError(f"{type(self).__name__} needs a split_forward method")


class Whole(SplitLayer):
    """A layer that every rank computes whole, on whole input."""

    def __init__(self, layer: Module, comm: Comm | None = None, into: Cut | None = None):
        super().__init__()
        self.layer = layer

    def named_arrays(self, prefix: str = "") -> Iterator[tuple[str, Module, str]]:
        return self.layer.named_arrays(prefix)  # the serial names

    def split_forward(self, a: Activation) -> Activation:
        return Activation(self.layer(a.gathered().x))


class Elementwise(Whole):
    """A layer that acts on each element alone, so that it does not care how its input is cut."""

    def __init__(self, layer: Module, comm: Comm | None = None, into: Cut | None = None):
        super().__init__(layer)
        self.out = into

    def split_forward(self, a: Activation) -> Activation:
        return Activation(self.layer(a.x), a.cuts)


def cut_of(owner: Module, attribute: str) -> Cut | None:
    """How a module's array is cut; None where it is whole."""
    return getattr(owner, "cuts", {}).get(attribute)


def owned(model: Module) -> list[tuple[str, Module, str]]:
    """Name, owner and attribute of each parameter, once, in the order of ``model.parameters()``."""
    names = model.named_parameters()
    return [found for found in model.named_arrays() if found[0] in names]


def whole_nbytes(layer: Module) -> int:
    """Bytes of a layer's parameters, counting what is cut as a whole: the same on all ranks."""
    found: dict[int, int] = {}
    for _, owner, attribute in layer.named_arrays():
        value, cut = getattr(owner, attribute), cut_of(owner, attribute)
        if isinstance(value, Parameter):
            shape = [n if cut is None or i != cut.axis else cut.whole for i, n in enumerate(value.shape)]
            found[id(value)] = int(np.prod(shape)) * value.dtype.itemsize
    return sum(found.values())
