"""Which layer is split how: a plan that a person can read, and the model that comes of it.

Lecture section: model parallelism. Lesson: 11_model_parallel. A plan gives kinds by layer name,
``{"1": "column", "3": "row"}``; layers it does not name stay whole, on every rank.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from minigrad import nn
from minigrad.backend import Backend
from minigrad.device import to_host
from minigrad.module import Module, Sequential
from minigrad.tensor import Parameter, Tensor

from ..comm.collectives import allgather, allreduce
from ..comm.protocol import Comm
from .activation import Activation, even_cut
from .layer import Elementwise, SplitLayer, Whole
from .neurons import ColumnLinear, GatheredLinear, RowLinear

ELEMENTWISE = (nn.ReLU, nn.LeakyReLU, nn.GELU, nn.Sigmoid, nn.Tanh)


class Placed(Module):
    """The layers of a Sequential, each of them whole or split."""

    def __init__(self, layers: list[SplitLayer]):
        self.layers = layers

    def children(self) -> dict[str, Module]:
        return {str(i): layer for i, layer in enumerate(self.layers)}

    def forward(self, x: Any) -> Tensor:
        a = Activation(x if isinstance(x, Tensor) else Tensor(x))
        for layer in self.layers:
            a = layer.split_forward(a)
        return a.gathered().x


class ModelParallel(Backend):
    """Every rank sees the whole batch and holds a part of the model, as the plan says.

    Takes a ``Sequential``. Trains like ``Serial``.
    """

    def __init__(self, comm: Comm, plan: Mapping[str, str]):
        self.comm, self.plan = comm, dict(plan)
        self.rank, self.size = comm.rank, comm.size

    def place(self, model: Module) -> Module:
        """This rank's part of ``model``, with rank 0's parameters."""
        assert isinstance(model, Sequential)
        # TODO for the engineer of this file: agreement on model and plan, broadcast, errors, chains, default plan
        layers = [self.split(str(i), layer) for i, layer in enumerate(model.layers)]
        return Placed(layers)

    def split(self, name: str, layer: Module) -> SplitLayer:
        kind = self.plan.get(name)
        if kind is None:
            return Elementwise(layer) if isinstance(layer, ELEMENTWISE) else Whole(layer)
        assert isinstance(layer, nn.Linear)
        out, into = layer.weight.shape
        makers = {"column": (ColumnLinear, out), "gathered": (GatheredLinear, out), "row": (RowLinear, into)}
        make, n = makers[kind]
        return make(layer, even_cut(1, self.comm, n))

    def finish(self, model: Module, loss: float) -> float:
        """Sum the gradients of whole parameters of which each rank found a part; the loss all ranks have."""
        for layer in model.children().values():
            for name, comm in getattr(layer, "partial", {}).items():
                parameter: Parameter = getattr(layer, name)
                if parameter.grad is not None:
                    parameter.grad = allreduce(comm, parameter.grad)
        return loss

    def full_parameters(self, model: Module) -> dict[str, np.ndarray]:
        return {n: self.joined(o, a, v.data) for n, o, a, v in owned(model)}

    def full_gradients(self, model: Module) -> dict[str, np.ndarray | None]:
        return {n: None if v.grad is None else self.joined(o, a, v.grad) for n, o, a, v in owned(model)}

    def joined(self, owner: Module, attribute: str, part: Any) -> np.ndarray:
        """The whole of a parameter of which each rank holds a part."""
        cut = getattr(owner, "cuts", {}).get(attribute)
        if cut is None:
            return to_host(part)
        whole = np.concatenate([to_host(p) for p in allgather(cut.comm, part)], cut.axis)
        return whole if cut.order is None else whole.take(np.argsort(cut.order), cut.axis)


def owned(model: Module) -> list[tuple[str, Module, str, Parameter]]:
    """Name, owner, attribute and parameter, each parameter once."""
    found: dict[int, tuple[str, Module, str, Parameter]] = {}
    for name, owner, attribute in model.named_arrays():
        value = getattr(owner, attribute)
        if isinstance(value, Parameter):
            found.setdefault(id(value), (name, owner, attribute, value))
    return list(found.values())
