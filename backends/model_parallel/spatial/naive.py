"""A convolution in space as on the slide: each rank has some rows of the image, and asks for those it lacks.

Lecture section: model parallelism in space. Lesson: 12_spatial. ``layers.py`` splits rows and columns, for
any window.
"""

from __future__ import annotations

import numpy as np

from minigrad import ops
from minigrad.device import Array
from minigrad.module import Module
from minigrad.nn import Conv2d
from minigrad.op import OpResult, op
from minigrad.tensor import Tensor

from ...comm import differentiable
from ...comm.communicator import Communicator


class NaiveSpatialConv(Module):
    """A convolution of stride 1 whose output has as many rows as the image, of which a rank has some.

    Every rank has at least ``kernel // 2`` rows. The gradients of the weights add up over the ranks.
    """

    def __init__(self, layer: Conv2d, comm: Communicator):
        super().__init__()
        self.layer, self.comm = layer, comm

    def forward(self, x: Tensor) -> Tensor:
        halo = self.layer.weight.shape[2] // 2
        rows = with_neighbors(x, comm=self.comm, halo=halo)
        weight = differentiable.fan_out(self.layer.weight, comm=self.comm)
        bias = None if self.layer.bias is None else differentiable.fan_out(self.layer.bias, comm=self.comm)
        return ops.conv2d(rows, weight, bias, padding=(0, self.layer.weight.shape[3] // 2))


@op
def with_neighbors(x: Array, *, comm: Communicator, halo: int) -> OpResult:
    """x (samples, channels, rows, columns) between the next rows of both neighbors, or zeros."""
    rows = x.shape[2]
    above, below = exchange(comm, x[:, :, :halo], x[:, :, rows - halo :])

    def back(g: Array) -> Array:
        """The gradient of the own rows, with the terms that the neighbors computed for them."""
        own = g[:, :, halo : halo + rows].copy()
        first, last = exchange(comm, g[:, :, :halo], g[:, :, halo + rows :])
        own[:, :, :halo] += first
        own[:, :, rows - halo :] += last
        return own

    return np.concatenate([above, x, below], axis=2), (back,)


def exchange(comm: Communicator, first: Array, last: Array) -> tuple[Array, Array]:
    """Send ``first`` to the rank before and ``last`` to the rank after; what these send, or zeros."""
    sends = [comm.start_send(first, comm.rank - 1)] if comm.rank else []
    sends += [comm.start_send(last, comm.rank + 1)] if comm.rank < comm.size - 1 else []
    before = comm.recv(comm.rank - 1) if comm.rank else np.zeros_like(first)
    after = comm.recv(comm.rank + 1) if comm.rank < comm.size - 1 else np.zeros_like(last)
    for finish in sends:
        finish()
    return before, after
