"""A linear layer whose input, weight and output are blocks on a grid of ranks.

Lecture section: data and model parallelism together. Lesson: 14_hybrid, by ``plan.py``. x (samples, in) is A
of the product, w.T (in, out) is B: samples are cut over the rows of the grid, outputs over its columns, and
inputs over both, over its columns in x and over its rows in w. A rank has 1 / p of each. Between such layers
blocks stay blocks. On a grid of one row all samples are on every rank, and x is gathered piece by piece; on
one of one column the weights are, as in ZeRO's third stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from minigrad.device import Array
from minigrad.dtypes import in_dtype_of
from minigrad.nn import Linear
from minigrad.op import op
from minigrad.ops.linear import as_rows
from minigrad.pullback import OpResult
from minigrad.tensor import Parameter

from ..layers.layer import ShardedLayer
from ..layers.process_grid import ProcessGrid
from ..layers.sharding import Shard, ShardedTensor, even_shard
from .summa import Panel, panels, summa, summa_gradient_of_a, summa_gradient_of_b


@dataclass(frozen=True, eq=False)
class BlockShard(Shard):
    """A split of one axis over a group of ranks, whose parts are split by ``inner``, along another axis."""

    inner: Shard

    @property
    def parts(self) -> int:
        return super().parts * self.inner.parts

    def local_part(self, x):
        return self.inner.local_part(super().local_part(x))

    def gather(self, part: np.ndarray) -> np.ndarray:
        return super().gather(self.inner.gather(part))

    def full_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return super().full_shape(self.inner.full_shape(shape))


class GridLinear(ShardedLayer):
    """A block of the weight: x and y = x w.T + b are split by samples and by features, on a ``grid``.

    Forward is one product by SUMMA, backward one for the weight, and one for x if it needs a gradient. An x
    that all ranks hold whole is cut without a message, and its gradient is gathered. The ranks of a column
    have the same part of the bias, and each computes the term of its gradient that its samples give.
    """

    weight: Parameter
    bias: Parameter | None

    def __init__(self, layer: Linear, grid: ProcessGrid, in_sharding: Shard | None = None):
        super().__init__()
        n_out, n_in = layer.weight.shape
        self.grid, self.panels = grid, panels(n_in, grid.column.size, grid.row.size)
        self.features = even_shard(-1, grid.row, n_in)
        self.shard = self.out_sharding = even_shard(-1, grid.row, n_out)
        inputs = even_shard(1, grid.column, n_in)
        blocks = BlockShard(0, grid.row, self.shard.bounds, inner=inputs)
        self.shard_parameter("weight", layer.weight, blocks)
        self.shard_parameter("bias", layer.bias, self.shard.on_axis(0))
        if self.bias is not None:
            self.partial[self.bias] = grid.column

    def sharded_forward(self, a: ShardedTensor) -> ShardedTensor:
        if a.local.ndim < 2:
            raise ValueError(
                f"a layer on a grid takes x (samples, ..., in), got {a.shape}; give it an axis of samples"
            )
        samples = even_shard(0, self.grid.column, a.shape[0])
        x = a.redistribute(samples, self.features).local
        y = grid_product(x, self.weight, grid=self.grid, panels=self.panels)
        return ShardedTensor(y if self.bias is None else y + self.bias, (samples, self.shard))

    def describe(self) -> str:
        grid = f"grid {self.grid.column.size}x{self.grid.row.size}"
        inputs = f"{self.weight.shape[1]} of {self.features.length}"
        return f"{inputs}, {self.weight.shape[0]} of {self.shard.length}, {grid}"


@op
def grid_product(x: Array, weight: Array, *, grid: ProcessGrid, panels: Sequence[Panel]) -> OpResult:
    """This rank's block of x w.T, from its blocks of x (..., in) and of the weight (out, in)."""
    x = in_dtype_of(weight, x)
    a, b = as_rows(x), weight.T
    y = summa(grid, a, b, panels).reshape(*x.shape[:-1], b.shape[1])

    def to_x(g: Array) -> Array:
        return summa_gradient_of_a(grid, as_rows(g), b, panels).reshape(x.shape)

    def to_weight(g: Array) -> Array:
        return summa_gradient_of_b(grid, a, as_rows(g), panels).T

    return y, (to_x, to_weight)
