"""The types of the parameters of a split model, by which a ``TypedTape`` checks a forward pass of it.

Lecture section: model parallelism. Lesson: 11_model_parallel.
"""

from __future__ import annotations

from minigrad.module import Module
from minigrad.tensor import Parameter, Tensor

from ..comm.communicator import Communicator
from ..comm.gradient_types import FAN_OUT, SPLIT, SPLIT_INPUTS, GradientType
from ..placement import shards_of
from .grid_products.linear import GridLinear
from .layers.layer import ShardedLayer
from .spatial.layers import SpatialBatchNorm, Windowed


def parameter_types(model: Module) -> dict[Tensor, dict[Communicator, GradientType]]:
    """The types of the parameters of a placed ``model`` that are not replicated, by axis of ranks.

    A weight (outputs, inputs, ...) that is split along its inputs gives terms of a sum. Parameters whose
    gradients are summed after backward, by the ``partial`` of a layer, are FAN_OUT. Raises ValueError for
    layers in space and on a grid, whose tensors two axes of ranks share at once.
    """
    types: dict[Tensor, dict[Communicator, GradientType]] = {}
    for (owner, attribute), shard in shards_of(model).items():
        array = getattr(owner, attribute)
        if isinstance(array, Parameter):
            types.setdefault(array, {})[shard.comm] = SPLIT_INPUTS if shard.axis == 1 else SPLIT
    for layer in model.modules():
        if isinstance(layer, (GridLinear, Windowed, SpatialBatchNorm)):
            raise ValueError(
                f"{layer!r} has tensors that two axes of ranks share at once, for which there are no types; "
                "check a plan without it"
            )
        if isinstance(layer, ShardedLayer):
            for parameter, comm in layer.partial.items():
                types.setdefault(parameter, {})[comm] = FAN_OUT
    return types
