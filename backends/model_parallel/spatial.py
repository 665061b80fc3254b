"""Each rank has some rows, or a tile of rows and columns, of every image, and fetches the halo around it.

Lecture section: model parallelism in space. Lesson: 12_spatial. Dryden, Maruyama, Benson, Moon, Snir
and Van Essen 2019, "Improving strong-scaling of CNN training by exploiting finer-grained parallelism".
Weights are whole on every rank; each finds the part of their gradient that its outputs give, and these are
summed at the end of the step. An image that all ranks hold is shared without a message, and stays shared from
layer to layer.
"""

from __future__ import annotations

import math
import re
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

from ..comm.collectives import allgather
from ..comm.protocol import Comm
from .activation import Activation, Cut, even_cut
from .halo import nothing
from .layer import SplitLayer, Whole
from .windows import COLUMNS, ROWS, fetching_gradients, seen_by, window_along

POINT = Geometry((1, 1), (1, 1), (0, 0), (1, 1))


class Tiling:
    """The ranks as ``down`` x ``across`` tiles of an image: rank = row of tiles * across + column.

    ``axes`` has, for each axis that is cut, the ranks that share it. All ranks construct it together.
    """

    def __init__(self, comm: Comm, down: int, across: int):
        if down < 1 or across < 1 or down * across != comm.size:
            raise ValueError(
                f"tiles {down}x{across} need {down * across} ranks, got {comm.size}; "
                f"give rows and columns of tiles whose product is {comm.size}, or take rows"
            )
        row, column = divmod(comm.rank, across)
        groups = {ROWS: comm.split(column, row), COLUMNS: comm.split(row, column)}
        self.comm, self.axes = comm, {axis: group for axis, group in groups.items() if group.size > 1}

    def own(self, a: Activation) -> Activation:
        """``a``, whole again along whatever others have cut."""
        return a.gathered([cut.axis for cut in a.cuts if self.axes.get(cut.axis) is not cut.comm])

    def reach(self, a: Activation, geometry: Geometry, value: float = 0.0) -> tuple[Tensor, tuple[Cut, ...]]:
        """What this tile's windows look at, border and all, and how their outputs are cut."""
        if a.x.ndim != 4:
            raise ValueError(
                f"rows and tiles are of images (N, C, H, W), got shape {a.shape}; leave it out of the plan"
            )
        cuts = [a.along(axis) or even_cut(axis, comm, a.x.shape[axis]) for axis, comm in self.axes.items()]
        outs = [Cut(c.axis, c.comm, window_along(c.axis, geometry).output_bounds(c.bounds)) for c in cuts]
        whole = [cut for cut in cuts if cut not in a.cuts]
        return seen_by(a.x, cuts, outs, geometry, value=value, whole=whole), tuple(outs)

    def features(self, image: tuple[int, ...], cuts: Sequence[Cut]) -> Cut:
        """How flattened images (C, H, W), cut into tiles, are cut: each rank has its tile's features."""
        bounds = {ROWS: (0, image[1]), COLUMNS: (0, image[2])} | {cut.axis: cut.bounds for cut in cuts}
        numbers = np.arange(math.prod(image)).reshape(image)
        tiles = product(pairwise(bounds[ROWS]), pairwise(bounds[COLUMNS]))
        parts = [numbers[:, slice(*rows), slice(*columns)].reshape(-1) for rows, columns in tiles]
        ends = accumulate(map(len, parts), initial=0)
        return Cut(1, self.comm, tuple(ends), np.concatenate(parts))


def tiling_of(kind: str, comm: Comm) -> Tiling | None:
    """The tiles that a kind of split means: "rows", "tiles 2x3", or "tiles", as square as can be.

    None for any other kind. Raises ValueError where there are not as many tiles as ranks.
    """
    name, _, shape = kind.partition(" ")
    if name not in ("rows", "tiles"):
        return None
    across = max(n for n in range(1, math.isqrt(comm.size) + 1) if comm.size % n == 0)
    down, across = (comm.size, 1) if name == "rows" else (comm.size // across, across)
    if shape:
        found = re.fullmatch(r"(\d+)x(\d+)", shape)
        if found is None or name == "rows":
            raise ValueError(f"images are split by 'rows', 'tiles' or for example 'tiles 2x3', got {kind!r}")
        down, across = int(found[1]), int(found[2])
    return Tiling(comm, down, across)


class Windowed(SplitLayer):
    """A layer that slides a window over images; each rank computes the outputs of its tile.

    A rank whose tile has no outputs, since there are more ranks than rows, gives and gets halos all the same.
    """

    operation: Callable[..., Tensor]
    border = 0.0  # what stands around the image

    def __init__(self, layer: Module, tiling: Tiling):
        super().__init__()
        self.tiling, self.settings, self.description = tiling, vars(layer)["settings"], layer.describe()
        for name, parameter in vars(layer).items():
            if isinstance(parameter, Parameter):
                self.hold(name, parameter)
                self.partial[name] = tiling.comm

    def split_forward(self, a: Activation) -> Activation:
        a = self.tiling.own(a)
        geometry = self.checked(np.broadcast_to(0.0, a.shape))
        x, cuts = self.tiling.reach(a, geometry, self.border)
        weights = self.held
        outputs = dict(enumerate(geometry.output(*a.shape[ROWS:]), ROWS))
        outputs |= {cut.axis: cut.sizes[cut.comm.rank] for cut in cuts}
        if not all(outputs.values()):
            channels = len(weights[0]) if weights else x.shape[1]
            return Activation(nothing(x, *weights, shape=(len(x), channels, *outputs.values())), cuts)
        padding = (0, 0) if cuts else geometry.padding  # a border is there already
        return Activation(self.operation(x, *weights, **self.settings | {"padding": padding}), cuts)

    def checked(self, image: np.ndarray) -> Geometry:
        """The window on the whole image; raises ValueError where the serial layer does."""
        return pool_geometry(image, **self.settings)

    def describe(self) -> str:
        return self.description


class SpatialConv2d(Windowed):
    """Forward a halo from each neighbour, and backward too; at the end the weights' gradients are summed.

    Going back at stride 1 it is a halo of the outputs' gradient; else the gradient of the halo goes home.
    """

    operation = staticmethod(ops.conv2d)
    weight: Parameter

    def split_forward(self, a: Activation) -> Activation:
        a = self.tiling.own(a)
        geometry = self.checked(np.broadcast_to(0.0, a.shape))
        cuts = [a.along(axis) for axis in self.tiling.axes]
        plain = geometry.stride == (1, 1) and min(geometry.backward().padding) >= 0
        if not (cuts and all(cuts) and plain):
            return super().split_forward(a)
        y = super().split_forward(Activation(a.x.detach(), a.cuts))  # gives the weights their gradients
        settings = {"cuts": cuts, "outs": y.cuts, "geometry": geometry}
        return Activation(fetching_gradients(y.x, a.x, self.weight, **settings), y.cuts)

    def checked(self, image: np.ndarray) -> Geometry:
        return checked_geometry(image, self.weight.data, **self.settings)


class SpatialMaxPool2d(Windowed):
    """No message where windows lie side by side and no tile ends inside one."""

    operation = staticmethod(ops.max_pool2d)
    border = -math.inf


class SpatialAvgPool2d(Windowed):
    """The border around the image counts as zeros, as it does serially."""

    operation = staticmethod(ops.avg_pool2d)


class SpatialBatchNorm(Whole):
    """Each channel's mean and variance over all tiles: one small all-gather forward, one backward."""

    def __init__(self, layer: nn.BatchNorm, tiling: Tiling):
        super().__init__(layer)
        self.tiling = tiling
        self.weight, self.bias = layer.weight, layer.bias
        self.partial = {"weight": tiling.comm, "bias": tiling.comm}
        layer.gather = partial(allgather, tiling.comm)

    def split_forward(self, a: Activation) -> Activation:
        x, cuts = self.tiling.reach(self.tiling.own(a), POINT)
        return Activation(self.layer(x), cuts)


class SpatialFlatten(SplitLayer):
    """(N, C, H, W) to (N, features), each rank those of its tile: no message."""

    def __init__(self, layer: nn.Flatten, tiling: Tiling):
        super().__init__()
        self.tiling = tiling

    def split_forward(self, a: Activation) -> Activation:
        a = self.tiling.own(a)
        x, cuts = self.tiling.reach(a, POINT)
        y = ops.flatten(x, start_axis=1)
        return Activation(y, (self.tiling.features(a.shape[1:], cuts),) if cuts else ())


SPATIAL: dict[type[Module], Callable[..., SplitLayer]] = {
    nn.Conv2d: SpatialConv2d,
    nn.MaxPool2d: SpatialMaxPool2d,
    nn.AvgPool2d: SpatialAvgPool2d,
    nn.BatchNorm: SpatialBatchNorm,
    nn.Flatten: SpatialFlatten,
}
"""How the layers that have a kind "rows" or "tiles" are made, from the serial layer and the tiles."""
