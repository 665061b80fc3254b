"""Each rank has some rows, or a tile of rows and columns, of every image, and fetches the halo around it.

Lecture section: model parallelism in space. Lesson: 12_spatial. Dryden, Maruyama, Benson, Moon, Snir and Van
Essen 2019, "Improving strong-scaling of CNN training by exploiting finer-grained parallelism". Weights are
replicated; each rank computes the term of their gradient that comes from its outputs, and the terms are
summed at the end of the step. An image that all ranks hold is split without a message, and stays split from
layer to layer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate, pairwise, product

import numpy as np

from minigrad import nn, ops
from minigrad.module import Module
from minigrad.ops.conv import checked_geometry
from minigrad.ops.geometry import Geometry
from minigrad.ops.pool import pool_geometry
from minigrad.tensor import Parameter, Tensor

from ...comm.collectives import allgather
from ...comm.communicator import Communicator
from ..layers.layer import ShardedLayer
from ..layers.pass_through import Replicated
from ..layers.process_grid import rows_by_columns
from ..layers.sharding import Shard, ShardedTensor, even_shard
from .halo import empty_output, receptive_field_of, with_fetched_gradients
from .receptive_field import COLUMNS, ROWS, window_along
from .tiled_features import TiledFeatures

POINT = Geometry((1, 1), (1, 1), (0, 0), (1, 1))


class Tiling:
    """The ranks as ``down`` x ``across`` tiles of an image: rank = row of tiles * across + column.

    ``axes`` has the ranks that share each split axis. Collective: all ranks construct it together.
    """

    def __init__(self, comm: Communicator, down: int, across: int):
        if down < 1 or across < 1 or down * across != comm.size:
            raise ValueError(
                f"tiles {down}x{across} need {down * across} ranks, got {comm.size}; "
                f"give rows and columns of tiles whose product is {comm.size}, or take rows"
            )
        row, column = divmod(comm.rank, across)
        groups = {ROWS: comm.split(column, row), COLUMNS: comm.split(row, column)}
        self.comm, self.axes = comm, {axis: group for axis, group in groups.items() if group.size > 1}

    def own(self, a: ShardedTensor) -> ShardedTensor:
        """``a``, gathered along the axes that are not split over this tiling's ranks."""
        return a.gather([shard.axis for shard in a.shards if self.axes.get(shard.axis) is not shard.comm])

    def receptive_field(
        self, a: ShardedTensor, geometry: Geometry, value: float = 0.0
    ) -> tuple[Tensor, tuple[Shard, ...]]:
        """The input, with the border, of this tile's windows, and how their outputs are split."""
        a = self.own(a)
        if any(geometry.extra):
            raise ValueError(
                f"rows and tiles need a border alike on both sides, here are {geometry.extra} more rows and "
                "columns at the end (padding same, ceil_mode); leave it out of the plan"
            )
        if a.local.ndim != 4:
            raise ValueError(
                f"rows and tiles are of images (N, C, H, W), got shape {a.shape}; leave it out of the plan"
            )
        shards = [
            a.shard_of(axis) or even_shard(axis, comm, a.shape[axis]) for axis, comm in self.axes.items()
        ]
        outs = [Shard(c.axis, c.comm, window_along(c.axis, geometry).output_bounds(c.bounds)) for c in shards]
        whole = [shard for shard in shards if shard not in a.shards]
        return receptive_field_of(a.local, shards, outs, geometry, value=value, whole=whole), tuple(outs)

    def features(self, image: tuple[int, ...], shards: Sequence[Shard]) -> Shard:
        """How the features of flattened images (C, H, W) are split, if each rank has those of its tile."""
        bounds = {ROWS: (0, image[1]), COLUMNS: (0, image[2])} | {
            shard.axis: shard.bounds for shard in shards
        }
        numbers = np.arange(math.prod(image)).reshape(image)
        tiles = product(pairwise(bounds[ROWS]), pairwise(bounds[COLUMNS]))
        parts = [numbers[:, slice(*rows), slice(*columns)].reshape(-1) for rows, columns in tiles]
        ends = accumulate(map(len, parts), initial=0)
        return TiledFeatures(1, self.comm, tuple(ends), np.concatenate(parts))


def tiling_of(kind: str, comm: Communicator) -> Tiling | None:
    """The tiling that a kind of split names: "rows", "tiles 2x3", or "tiles", as square as possible.

    None for any other kind. Raises ValueError unless there are as many tiles as ranks.
    """
    name, _, shape = kind.partition(" ")
    if name not in ("rows", "tiles"):
        return None
    numbers = rows_by_columns(shape, comm.size)
    if numbers is None or (shape and name == "rows"):
        raise ValueError(f"images are split by 'rows', 'tiles' or for example 'tiles 2x3', got {kind!r}")
    return Tiling(comm, *((comm.size, 1) if name == "rows" else numbers))


class Windowed(ShardedLayer):
    """A layer that slides a window over images; each rank computes the outputs of its tile.

    A rank whose tile has no outputs, because there are more ranks than rows, still sends and receives halos.
    """

    operation: Callable[..., Tensor]
    border = 0.0  # the value of the border around the image

    def __init__(self, layer: nn.Conv2d | nn.MaxPool2d | nn.AvgPool2d, tiling: Tiling):
        super().__init__()
        self.tiling, self.settings, self.description = tiling, layer.settings, layer.describe()
        for name, parameter in layer.named_parameters().items():
            self.shard_parameter(name, parameter)
        self.partial = dict.fromkeys(self.own_parameters, tiling.comm)

    def sharded_forward(self, a: ShardedTensor) -> ShardedTensor:
        geometry = self.checked(np.broadcast_to(0.0, a.shape))
        x, shards = self.tiling.receptive_field(a, geometry, self.border)
        weights = self.own_parameters
        outputs = dict(enumerate(geometry.output(*a.shape[ROWS:]), ROWS))
        outputs |= {shard.axis: shard.local_size for shard in shards}
        if not all(outputs.values()):
            channels = len(weights[0]) if weights else x.shape[1]
            shape = (len(x), channels, *outputs.values())
            return ShardedTensor(empty_output(x, *weights, shape=shape), shards)
        padding = (0, 0) if shards else geometry.padding  # x has its border already
        return ShardedTensor(self.operation(x, *weights, **self.settings | {"padding": padding}), shards)

    def checked(self, image: np.ndarray) -> Geometry:
        """The geometry on the whole image; raises ValueError where the serial layer does."""
        return pool_geometry(image, **self.settings)

    def describe(self) -> str:
        return self.description


class SpatialConv2d(Windowed):
    """Fetches a halo from each neighbour, forward and backward.

    At stride 1 backward fetches a halo of the output's gradient; otherwise it returns the halo's gradient.
    """

    operation = staticmethod(ops.conv2d)
    weight: Parameter

    def sharded_forward(self, a: ShardedTensor) -> ShardedTensor:
        a = self.tiling.own(a)
        geometry = self.checked(np.broadcast_to(0.0, a.shape))
        shards = [a.shard_of(axis) for axis in self.tiling.axes]
        plain = geometry.stride == (1, 1) and min(geometry.backward().padding) >= 0
        if not (shards and all(shards) and plain):
            return super().sharded_forward(a)
        y = super().sharded_forward(ShardedTensor(a.local.detach(), a.shards))  # for the weights' gradients
        settings = {"shards": shards, "outs": y.shards, "geometry": geometry}
        return ShardedTensor(with_fetched_gradients(y.local, a.local, self.weight, **settings), y.shards)

    def checked(self, image: np.ndarray) -> Geometry:
        return checked_geometry("conv2d", image, self.weight.data, **self.settings)


class SpatialMaxPool2d(Windowed):
    """No message where windows do not overlap and no tile ends inside one."""

    operation = staticmethod(ops.max_pool2d)
    border = -math.inf


class SpatialAvgPool2d(Windowed):
    """The border around the image is zeros, as it is serially."""

    operation = staticmethod(ops.avg_pool2d)

    def checked(self, image: np.ndarray) -> Geometry:
        settings = {name: value for name, value in self.settings.items() if name != "count_include_pad"}
        geometry = pool_geometry(image, **settings)
        if any(geometry.padding) and not self.settings["count_include_pad"]:
            raise ValueError(
                "rows and tiles count padding in each mean, this layer has count_include_pad=False; leave it "
                "out of the plan"
            )
        return geometry


class SpatialBatchNorm(Replicated):
    """Each channel's mean and variance over all tiles: one small all-gather forward, one backward."""

    def __init__(self, layer: nn.BatchNorm, tiling: Tiling):
        super().__init__(layer)
        self.tiling = tiling
        self.partial = dict.fromkeys(layer.parameters(), tiling.comm)
        layer.synchronize("model", partial(allgather, tiling.comm))

    def sharded_forward(self, a: ShardedTensor) -> ShardedTensor:
        x, shards = self.tiling.receptive_field(a, POINT)
        return ShardedTensor(self.layer(x), shards)


class SpatialFlatten(ShardedLayer):
    """(N, C, H, W) to (N, features): each rank has the features of its tile, without a message."""

    def __init__(self, layer: nn.Flatten, tiling: Tiling):
        super().__init__()
        self.tiling = tiling

    def sharded_forward(self, a: ShardedTensor) -> ShardedTensor:
        x, shards = self.tiling.receptive_field(a, POINT)
        y = ops.flatten(x, start_axis=1)
        return ShardedTensor(y, (self.tiling.features(a.shape[1:], shards),) if shards else ())


SPATIAL: dict[type[Module], Callable[..., ShardedLayer]] = {
    nn.Conv2d: SpatialConv2d,
    nn.MaxPool2d: SpatialMaxPool2d,
    nn.AvgPool2d: SpatialAvgPool2d,
    nn.BatchNorm: SpatialBatchNorm,
    nn.Flatten: SpatialFlatten,
}
"""The sharded layer of a serial one that is split by "rows" or "tiles", made from it and the tiling."""
