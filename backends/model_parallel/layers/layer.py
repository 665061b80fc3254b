"""A layer that is split over ranks, made from a serial layer that every rank has built.

Lecture section: model parallelism. Lesson: 11_model_parallel, by ``conv.py``.
"""

from __future__ import annotations

from typing import Any

from minigrad.module import Module
from minigrad.tensor import Parameter, Tensor

from ...comm.communicator import Communicator
from .sharding import Shard, ShardedTensor


class ShardedLayer(Module):
    """A layer from ``ShardedTensor`` to ``ShardedTensor``; its parameters have the serial layer's names.

    ``shards`` says by attribute name how each parameter is split; others are replicated. ``partial`` has the
    replicated parameters of which each rank computes one term of the gradient, and the ranks over which to
    sum the terms. ``out_sharding`` is the split of the output's channels or features, on any axis, which the
    next layer takes over; ``splits_tokens`` says whether the output (N, S, features) is split by its tokens.
    """

    out_sharding: Shard | None = None
    splits_tokens = False

    def __init__(self) -> None:
        self.shards: dict[str, Shard] = {}
        self.partial: dict[Parameter, Communicator] = {}

    @property
    def is_whole(self) -> bool:
        return all(shard.parts == 1 for shard in self.shards.values())

    def shard_parameter(self, name: str, parameter: Parameter | None, shard: Shard | None = None) -> None:
        """Make this rank's part of a serial parameter an attribute of this layer."""
        if parameter is None:
            setattr(self, name, None)
            return
        data = parameter.data if shard is None else shard.local_part(parameter.data)
        setattr(self, name, Parameter(data, parameter.requires_grad))
        if shard is not None:
            self.shards[name] = shard

    @property
    def own_parameters(self) -> list[Parameter]:
        """This layer's own parameters, in the order in which they were made, without None."""
        return [value for value in vars(self).values() if isinstance(value, Parameter)]

    def forward(self, x: Any, **keywords: Any) -> Tensor:
        """From the whole input to the whole output; ``keywords`` are those of ``sharded_forward``."""
        a = ShardedTensor(x if isinstance(x, Tensor) else Tensor(x))
        return self.sharded_forward(a, **keywords).gather().local

    def sharded_forward(self, *inputs: Any, **keywords: Any) -> ShardedTensor:
        raise NotImplementedError(f"{type(self).__name__} needs a sharded_forward method")
